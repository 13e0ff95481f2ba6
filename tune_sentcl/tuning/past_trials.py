"""Past trials for a search: those of other studies, and its own interrupted ones."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tune_sentcl.config import METHODS, TrialConfig, code_of, evaluation_data, varied
from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.history import Configuration, History
from tune_sentcl.objective import Objective
from tune_sentcl.space import Space
from tune_sentcl.store.files import distinct_studies, study_path
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.output import config_of
from tune_sentcl.tuning.early_stopping_objective import other_versions
from tune_sentcl.tuning.sampler.portfolio import standardized
from tune_sentcl.tuning.sampler.sampling import Params
from tune_sentcl.tuning.staging import CONFIGURATION_ERRORS

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


def interrupted_trials(study: Study, history: History) -> dict[str, TrialConfig]:
    """Configs by trial id of the trials that have a saved state and no row."""
    names = sorted(name for name in study.states() if name not in history)
    configs = ((name, config_of(study, name)) for name in names)
    return {name: config for name, config in configs if config is not None}


def changed_code(history: History) -> Iterator[str]:
    """Say of each plugin's method how many trials of a study ran with other code of it."""
    columns = (history.table[name].to_pylist() for name in ("method.name", "code_fingerprint"))
    older: Counter[str] = Counter(
        method
        for method, code in zip(*columns, strict=True)
        if code and code_of(method) not in ("", code)
    )
    for method, count in sorted(older.items()):
        trials = f"{count} trial{'' if count == 1 else 's'} of method {method}"
        yield (
            f"{METHODS[method].plugin} has changed since {trials} began: they stay in the study, "
            "and the search runs others with the new code"
        )
