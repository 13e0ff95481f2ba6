"""The configurations with which a search starts: the best of other studies, and priors."""

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.errors import Fault, SpaceError
from tune_sentcl.space import Space
from tune_sentcl.space.grids import UNION_NAMES
from tune_sentcl.tuning.sampler.past_scale import WORST
from tune_sentcl.tuning.sampler.subspaces import Params

K = TypeVar("K", bound=Hashable)

SIZE = 10
"""The most configurations of other studies that a search starts with."""


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


def best_params(past_trials: Iterable[FrozenTrial]) -> list[Params]:
    """The portfolio of the finished configurations of other studies, by the first objective.

    Configurations of one study with the same params count with their mean.
    """
    found: dict[str, dict[tuple[tuple[str, Any], ...], list[float]]] = {}
    for trial in past_trials:
        if trial.state == TrialState.COMPLETE:
            study = found.setdefault(trial.user_attrs["learned_from"], {})
            study.setdefault(tuple(sorted(trial.params.items())), []).append(trial.values[0])
    means = [{key: statistics.fmean(v) for key, v in study.items()} for study in found.values()]
    return [dict(key) for key in portfolio(means, SIZE)]


def prior_params(space: Space) -> list[Params]:
    """The configurations of a space's priors: one for each method and optimizer with all of them.

    A prior of `method.name` or `optimizer.name` leaves out the other methods or optimizers.
    """
    found = []
    for branch in space.branches():
        active = space.active_ranges(branch)
        priors = {item.key: item.prior for item in active if item.prior is not None}
        params = {**priors, **branch}
        if priors and priors.items() <= params.items() and len(params) == len(active):
            found.append(params)
    return found


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
