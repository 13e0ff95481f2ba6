"""The ranking of configurations."""

from collections.abc import Container, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from tune_sentcl.config import Values, draws
from tune_sentcl.objective import mean as mean_of
from tune_sentcl.store.union import TOLERANCE

K = TypeVar("K", bound=Hashable)
RankKey = tuple[bool, bool, int, float, str]
"""Sorts configurations; the smallest is the best."""


def constant_score(values: Sequence[float], knobs: Values) -> float | None:
    """The score of a configuration that does not depend on the seed; else None.

    The score does not depend on the seed if the configuration takes no training step and all
    its scores are equal. It then holds for lost seeds too.

    Args:
        values: Its scores by seed, times 100.
        knobs: Its dotted values.
    """
    if not values or draws(knobs) or max(values) - min(values) > TOLERANCE:
        return None
    return mean_of(values)


def rank_keys(
    scores: Mapping[K, Sequence[float]],
    lost: Mapping[K, int] = MappingProxyType({}),
    constant: Container[K] = (),
) -> dict[K, RankKey]:
    """The sort keys of configurations; the smallest is the best.

    The order is: configurations without lost seeds, with lost seeds (whose other seeds may be the
    lucky ones), without a score. Within each group those with the most seeds come first, because
    the best of many means of few seeds is the luckiest one; then the highest mean, then the name.
    A seed that was never run is not lost.

    Args:
        scores: By configuration, the scores of the seeds that count for a choice.
        lost: How many seeds were lost (`History.lost_reason`).
        constant: The configurations with a `constant_score`, which holds for every seed.
    """
    most = max(map(len, scores.values()), default=0)
    found: dict[K, RankKey] = {}
    for key, values in scores.items():
        mean, is_constant = mean_of(values), key in constant
        missed = not is_constant and lost.get(key, 0) > 0
        seeds = 0 if mean is None else most if is_constant else len(values)
        found[key] = (mean is None, missed, -seeds, -(mean or 0.0), str(key))
    return found
