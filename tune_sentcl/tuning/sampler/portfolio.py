"""The configurations with which a search starts: the best of other studies, and priors."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from tune_sentcl.errors import Fault, SpaceError
from tune_sentcl.space import Space
from tune_sentcl.space.grids import UNION_NAMES
from tune_sentcl.tuning.sampler.sampling import Params

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
