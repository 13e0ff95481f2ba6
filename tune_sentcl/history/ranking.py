"""The ranking of configurations, and the evaluation data that it uses."""

import math
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeVar

from tune_sentcl.config import DataName, Values, draws
from tune_sentcl.objective import mean as mean_of
from tune_sentcl.store.reading.union import TOLERANCE

K = TypeVar("K")
RankKey = tuple[bool, bool, float, int, float, str]
"""Sorts configurations with the same evaluation data; the smallest is the best."""
_FEWEST = 3  # configurations for a prior


def constant_score(values: Sequence[float], knobs: Values) -> float | None:
    """The score of a configuration that does not depend on the seed; else None.

    It does not if the configuration takes no training step and its scores of several seeds are
    equal (the folds of an evaluation depend on the seed). The score then holds for lost seeds too.

    Args:
        values: Its scores by seed, times 100.
        knobs: Its dotted values.
    """
    if not values or draws(knobs) or max(values) - min(values) > TOLERANCE:
        return None
    return mean_of(values)


def estimates(scores: Mapping[K, Sequence[float]], apart: Container[K] = ()) -> dict[K, float]:
    """Each configuration's mean, shrunk the more the fewer seeds it has; NaN without a score.

    With n seeds it is `m + t / (t + s / n) * (mean - m)` (empirical Bayes: Efron and Morris 1975).
    s is the pooled variance over seeds. m and t are the mean and variance of the true scores in
    the upper half of the configurations, because bad ones do not show how close good ones are. t
    is the variance of the means less the mean of s / n, and at least s / 20. The estimate is the
    mean if all n are equal (the order would be the same), if s is 0, or with fewer than three
    configurations.

    Args:
        scores: By configuration, the finite scores of the seeds that count for a choice, in any
            order; all on the same evaluation data.
        apart: Configurations that keep their mean and do not affect other estimates: those with a
            `constant_score`, and those with lost seeds, which come last.
    """
    means = {key: math.nan if (m := mean_of(v)) is None else m for key, v in scores.items()}
    drawn = {key: len(v) for key, v in scores.items() if len(v) and key not in apart}
    if len(drawn) < _FEWEST or len(set(drawn.values())) < 2:
        return means
    several = [key for key in drawn if min(scores[key]) < max(scores[key])]
    squares = math.fsum((value - means[key]) ** 2 for key in several for value in scores[key])
    noise = squares / sum(n - 1 for n in drawn.values())
    if not noise:
        return means
    ordered = sorted(((means[key], n) for key, n in drawn.items()), reverse=True)
    upper = ordered[: max(_FEWEST, (len(drawn) + 1) // 2)]
    center = math.fsum(mean for mean, _ in upper) / len(upper)
    seen = math.fsum((mean - center) ** 2 for mean, _ in upper) / (len(upper) - 1)
    spread = seen - math.fsum(noise / n for _, n in upper) / len(upper)
    spread = max(spread, 0.05 * noise, sys.float_info.min)
    for key, n in drawn.items():
        means[key] = center + spread / (spread + noise / n) * (means[key] - center)
    return means


def rank_key(estimate: float, values: Sequence[float], lost: int, name: str) -> RankKey:
    """The sort key of configurations with the same evaluation data; the smallest is the best.

    The order is: configurations without lost seeds, with lost seeds (whose other seeds may be the
    lucky ones), without a score. Within each group it is by estimate, number of seeds and mean,
    highest first, then by name. A seed that was never run is not lost.

    Args:
        estimate: Of `estimates`.
        values: The scores of the seeds that count for a choice.
        lost: The number of lost seeds (`History.lost_reason`); 0 with a `constant_score`.
        name: The configuration's name.
    """
    mean = mean_of(values)
    if mean is None:
        return True, lost > 0, 0.0, 0, 0.0, name
    return False, lost > 0, -estimate, -len(values), -mean, name


def best_configuration(
    scores: Mapping[str, Sequence[float]], constant: Container[str] = ()
) -> str:
    """The best of configurations without lost seeds, by `rank_key`.

    Args:
        scores: By name, the scores of the seeds; at least one configuration has a score.
        constant: The names of those with a `constant_score`.
    """
    found = estimates(scores, constant)
    return min(scores, key=lambda name: rank_key(found[name], scores[name], 0, name))


def ranked_data(finished: Iterable[tuple[str, bool]]) -> DataName:
    """The evaluation data that ranks trials if several were used: the real sets if possible.

    Args:
        finished: The evaluation data of each finished trial that counts for a choice, and whether
            it has the score. Trials without the score matter only if no trial has it.
    """
    distinct = set(finished)
    sets = {data for data, scored in distinct if scored} or {data for data, _ in distinct}
    return "toy" if sets == {"toy"} else "root"
