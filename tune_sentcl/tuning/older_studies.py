"""The configurations with which a search starts: the best of older studies, and priors."""

import math
import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tune_sentcl.config import evaluation_data, varied
from tune_sentcl.errors import Fault, SpaceError, StudyError
from tune_sentcl.history import Configuration, History
from tune_sentcl.objective import Objective
from tune_sentcl.space import Space
from tune_sentcl.space.grids import UNION_NAMES
from tune_sentcl.store.files import distinct_studies, study_path
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.objectives import other_versions
from tune_sentcl.tuning.sampler import Params
from tune_sentcl.tuning.staging import CONFIGURATION_ERRORS

K = TypeVar("K", bound=Hashable)

WORST = -1.0
"""The lowest standardized value."""

SIZE = 10
"""The most configurations of other studies that a search starts with."""

MOST_WHOLE = 3
"""The first of them train whole at once; the others begin the first halving."""


def standardized(values: Mapping[K, float]) -> dict[K, float]:
    """Map the values of one study so that its center becomes 0 and its best value 1.

    The center is the median, or the worst finite value if that is higher: a search that stops most
    configurations early has scores of the best ones only. Values below -1 become -1, so that a
    diverged trial does not set the scale.

    Args:
        values: The values; -inf stands for a configuration without a score.
    """
    finite = [value for value in values.values() if value > -math.inf]
    if not finite:
        return dict.fromkeys(values, WORST)
    center = max(statistics.median(values.values()), min(finite))
    unit = max(finite) - center or 1.0
    return {key: max(WORST, (value - center) / unit) for key, value in values.items()}


def portfolio(studies: Sequence[Mapping[K, float]], size: int) -> list[K]:
    """Choose greedily the configurations that together did best in several studies.

    Each choice maximizes the mean over the studies of the best standardized value that a chosen
    configuration has there. Among equal choices, the one with the highest mean value of its own
    comes first, then the first in the order of the studies. A configuration has the worst value
    in a study that does not hold it. One that is below the center of every study is not chosen.

    Args:
        studies: For each study the standardized value of each configuration.
        size: The most configurations to choose.
    """
    candidates = dict.fromkeys(key for study in studies for key in study if study[key] >= 0)
    best = [WORST] * len(studies)
    chosen: list[K] = []
    while candidates and len(chosen) < size:
        key = max(candidates, key=lambda key: _means(key, studies, best))
        best = [max(b, study.get(key, WORST)) for b, study in zip(best, studies, strict=True)]
        chosen.append(key)
        del candidates[key]
    return chosen


def _means(
    key: K, studies: Sequence[Mapping[K, float]], best: Sequence[float]
) -> tuple[float, float]:
    own = [study.get(key, WORST) for study in studies]
    return statistics.fmean(map(max, best, own)), statistics.fmean(own)


def best_params(studies: Sequence[Mapping[tuple[tuple[str, Any], ...], float]]) -> list[Params]:
    """The portfolio of other studies, given their standardized scores by params."""
    return [dict(key) for key in portfolio(studies, SIZE)]


def prior_params(space: Space) -> list[Params]:
    """The configurations of a space's priors: one for each method and optimizer with all of them.

    A prior of `method.name` or `optimizer.name` leaves out the other methods or optimizers.
    """
    complete = []
    for branch in space.branches():
        active = space.active_ranges(branch)
        priors = {item.key: item.prior for item in active if item.prior is not None}
        params = {**priors, **branch}
        if priors and priors.items() <= params.items() and len(params) == len(active):
            complete.append(params)
    return complete


def check_priors(space: Space) -> None:
    """Refuse a prior that no method has all priors for: a search would ignore it.

    Raises:
        SpaceError: A prior lacks those of other ranges.
    """
    lacking: dict[str, list[str]] = {}
    for active in map(space.active_ranges, space.branches()):
        without = [r.key for r in active if r.prior is None and r.key not in UNION_NAMES]
        for item in active:
            if item.prior is not None:
                lacking[item.key] = min(lacking.get(item.key, without), without, key=len)
    rule = "needs a prior of each other range of its method"
    faults = [
        Fault(f"{space.source} [search.ranges]", f"{key}.prior", "", rule, f"Give {names}.prior.")
        for key, without in lacking.items()
        if (names := ".prior and ".join(without))
    ]
    if faults:
        raise SpaceError(faults)


PastStudy = dict[tuple[tuple[str, Any], ...], float]
"""The standardized scores of a study's configurations, by their params."""


def past_studies(
    studies: Sequence[str], space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> list[PastStudy]:
    """Read the configurations of other studies that lie in the ranges of a space.

    A knob of method or optimizer that a study varied and the space fixes must have the same value.
    All else may differ, such as encoder and data.

    A configuration counts by the mean of its first objective on the evaluation data of this
    search, standardized within its study. If a seed was stopped or failed through the settings, it
    counts as the worst. After any other failure it is left out.

    Raises:
        StudyError: A study has no finished configuration with these objectives in the ranges, or
            an objective was scored on other rows there.
    """
    past: list[PastStudy] = []
    faults: list[Fault] = []
    for study in map(study_path, distinct_studies(studies)):
        in_ranges = list(_in_ranges(study, space, objectives, loader))
        scores: dict[tuple[tuple[str, Any], ...], list[float]] = {}
        for params, configuration in in_ranges:
            if (score := _score(configuration, len(objectives))) is not None:
                scores.setdefault(tuple(sorted(params.items())), []).append(score)
        means = {key: statistics.fmean(values) for key, values in scores.items()}
        if max(means.values(), default=-math.inf) > -math.inf:
            past.append(standardized(means))
            continue
        rule = f"has no configuration in the ranges of {space.name}"
        if in_ranges:
            rule += f" that has finished with {' and '.join(map(str, objectives))}"
        move = "Leave that study out, or name one of the same space and objective."
        faults.append(Fault("--learn-from", "", study, rule, move))
    if faults:
        raise StudyError(faults)
    return past


def _in_ranges(
    path: str, space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> Iterator[tuple[Params, Configuration]]:
    """The configurations of a study that lie in the ranges, with their params."""
    history = History.read(Study.read(path), objectives)
    _check_versions(path, space, loader, history)
    read = list(history.configurations())
    ranged = {item.key for item in space.ranges}
    others = [key for key in varied([past.values for past in read]) if key not in ranged]
    others = [key for key in others if key.startswith(("method.", "optimizer."))]
    for past in read:
        params = space.params_of(past.values)
        if params is None:
            continue
        sampled = space.sampled_values(params)
        known = [k for k in others if k in past.values and k in sampled]
        if all(past.values[k] == sampled[k] for k in known):
            yield params, past


def _score(past: Configuration, objectives: int) -> float | None:
    """The mean of the first objective; -inf if it is the worst, None if that is unknown."""
    failed = {result.error_type for result in past.results.values() if result.status == "failed"}
    if failed:
        return -math.inf if failed <= CONFIGURATION_ERRORS else None
    # A stopped seed has no score, so that the mean lacks it.
    means = [past.mean(past.results, number) for number in range(objectives)]
    return -math.inf if None in means else means[0]


def _check_versions(path: str, space: Space, loader: InputLoader, history: History) -> None:
    """Raise if a study was scored on other rows: such values cannot be compared."""
    faults: dict[Fault, None] = {}
    wanted = evaluation_data(space.configurations[0])
    if history.data not in (None, wanted):
        rule = f"was scored on {history.data} evaluation data, and this search is on {wanted}"
        faults[Fault("--learn-from", "", path, rule, "Leave that study out.")] = None
    for task, split, others in other_versions(space, loader, history):
        for objective in history.objectives:
            if (objective.task, objective.split) == (task.name, split):
                rule = f"has {objective} of version {others}, and the rows here are {task.version}"
                move = "Leave that study out, or restore its rows."
                faults[Fault("--learn-from", "", path, rule, move)] = None
    if faults:
        raise StudyError(faults)
