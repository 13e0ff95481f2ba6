"""What a few seeds can say: the statistics of a study, each with its source.

All of them take scores as they are, times 100 or not; an sd has n - 1 under its root.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.special import nctdtr, nctdtrinc, ndtr, stdtrit

Values = Float64[np.ndarray, "n"]

_PRIOR = 4.0
"""Variance, in sds of the differences, of the differences that `log_evidence` expects.

By simulation differences of 1 to 10 sds of a seed take the fewest seeds with it, of 1, 2, 4, 9 and
16; its size changes how many seeds are needed and never what may go wrong.
"""
_POWER = 0.9
_SAFEGUARD = 0.8
_LARGE = math.sqrt(2)  # of the differences of two independent seeds: 2 sds of a seed
_DRAWS = 10_000


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return math.fsum(values) / len(values) if len(values) else math.nan


def sd(values: Sequence[float]) -> float:
    """The standard deviation, n - 1 under the root; NaN for fewer than two values."""
    return float(np.std(np.asarray(values, np.float64), ddof=1)) if len(values) > 1 else math.nan


def prediction_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Where one more observation of the same kind lies, with this probability.

    `mean -+ t * sd * sqrt(1 + 1/n)` with Student's t of n - 1 degrees of freedom, for normal
    values: Hahn and Meeker, Statistical Intervals (1991), chapter 4.

    Args:
        values: n observations, such as one score of n seeds.
        level: The probability, above 0 and below 1.

    Returns:
        The lower and the upper end; minus and plus infinity for fewer than two values.
    """
    n = len(values)
    if n < 2:
        return -math.inf, math.inf
    reach = float(stdtrit(n - 1, (1 + level) / 2)) * sd(values) * math.sqrt(1 + 1 / n)
    return mean(values) - reach, mean(values) + reach


def differences(
    first: Mapping[int, float], second: Mapping[int, float], fewest: int = 3
) -> tuple[list[float], bool]:
    """One difference, first minus second, a seed.

    Seeds that both have are paired: what a seed does to both alike falls out. With fewer of them
    than `fewest` the seeds of each are matched in their order, which compares two means exactly
    whatever their variances are (Scheffe 1943, Annals of Mathematical Statistics 14, 35-44), with
    the degrees of freedom of the smaller sample; which seeds meet must not depend on the values.

    Args:
        first: Score by seed.
        second: Likewise.
        fewest: So many common seeds are enough to leave out the others.

    Returns:
        The differences, and whether they are of common seeds.
    """
    common = sorted(first.keys() & second.keys())
    if len(common) >= min(fewest, len(first), len(second)):
        return [first[seed] - second[seed] for seed in common], True
    sides = [[values[seed] for seed in sorted(values)] for values in (first, second)]
    return [a - b for a, b in zip(*sides, strict=False)], False


def log_evidence(
    count: Float64[np.ndarray, "*pairs"],
    centre: Float64[np.ndarray, "*pairs"],
    spread: Float64[np.ndarray, "*pairs"],
) -> Float64[np.ndarray, "*pairs"]:
    """Logarithm of the evidence that normal differences have not 0 as their mean.

    The likelihood of Student's t under effects drawn from N(0, 4), over that under none: a test
    martingale as seeds come. By Ville's inequality, whatever the variance is, the chance that it
    ever reaches 1 / alpha where there is no difference is alpha at most, so that one may look
    after each seed, and stop when one likes. Lai (1976, Annals of Statistics 4, 265-280) with the
    Gaussian mixture of Wang and Ramdas (2025, Sequential Analysis 44, 56-110); its closed form as
    in Gonen et al. (2005, The American Statistician 59, 252-257).

    Args:
        count: How many differences there are of each pair.
        centre: Their mean.
        spread: Their sd; what is no number counts as no evidence.
    """
    wide = 1 + count * _PRIOR
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = count * (centre / spread) ** 2 / (count - 1)  # t^2 over its degrees of freedom
        # log((1 + r) / (1 + r / wide)), as exact for an infinite r, of differences that are equal
        gain = np.log(wide) - np.log1p((wide - 1) / (1 + ratio))
    found = (count * gain - np.log(wide)) / 2
    return np.where((count > 1) & ~np.isnan(ratio), found, 0.0)


def p_values(evidence: Float64[np.ndarray, "*pairs"]) -> Float64[np.ndarray, "*pairs"]:
    """p-values that hold at any time, of `log_evidence`: 1 over the evidence."""
    found: Float64[np.ndarray, "*pairs"] = np.exp(-np.maximum(evidence, 0.0))
    return found


def holm(found: Values, count: int | None = None) -> Values:
    """p-values corrected for how many there are: Holm (1979, Scand. J. Statistics 6, 65-70).

    All claims whose corrected value is alpha at most hold together but with probability alpha,
    however the values hang together. What holds at any time does so still: the claims that stand
    at one time are among those of the smallest values that there ever were.

    Args:
        found: The p-values.
        count: How many there are, with those that are 1 for sure and not given; None: these.
    """
    order = np.argsort(found, kind="stable")
    factors = (len(found) if count is None else count) - np.arange(len(found))
    corrected = np.minimum(1.0, np.maximum.accumulate(found[order] * factors))
    result = np.empty(len(found))
    result[order] = corrected
    return result


def lasting_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Where the mean of differences lies, at all times with probability 1 - alpha.

    The means that `log_evidence` does not refute: a confidence sequence.

    Args:
        values: The differences.
        alpha: What may go wrong.

    Returns:
        The lower and the upper end; minus and plus infinity for too few of them.
    """
    n = len(values)
    reach = _critical(n, alpha) * sd(values) / math.sqrt(n) if n > 1 else math.nan
    if not math.isfinite(reach):
        return -math.inf, math.inf
    return mean(values) - reach, mean(values) + reach


def bootstrap_interval(
    values: Sequence[float], level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Where the mean lies, from samples of the values themselves.

    Percentiles, set further out for small n as t's are: the expanded percentile interval of
    Hesterberg (2015, The American Statistician 69, 371-386).

    Args:
        values: Such as one score, or one difference, a seed.
        level: The probability that is meant.
        seed: Of the draws.

    Returns:
        The lower and the upper end; NaN for fewer than two values.
    """
    n = len(values)
    if n < 2:
        return math.nan, math.nan
    rows = np.random.default_rng(seed).integers(0, n, (_DRAWS, n))
    means = np.asarray(values, np.float64)[rows].mean(axis=1)
    tail = float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - level) / 2)))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def seeds_needed(values: Sequence[float], alpha: float, most: int) -> int | None:
    """How many seeds establish a difference like the one that is seen, nine times of ten.

    The effect that is planned for is the mean over the sd of the differences, as seen; but of few
    seeds a large one is luck more often than not. One above the difference of 2 sds of a seed
    counts as that, unless its lower limit at 80 % is larger still (a safeguard, as Perugini,
    Gallucci and Costantini 2014, Perspectives on Psychological Science 9, 319-332). The power is
    that of the noncentral t.

    Args:
        values: The differences, two at least.
        alpha: What may go wrong, corrected for the number of comparisons.
        most: Ask for no more.

    Returns:
        The number, those at hand included; None where `most` would not do.
    """
    n, spread = len(values), sd(values)
    seen = abs(mean(values)) / spread if spread else (math.inf if mean(values) else 0.0)
    effect = min(seen, _LARGE)
    if seen > _LARGE:
        # An effect of 100 is no other than one of 1000 to what follows.
        low = float(nctdtrinc(n - 1, _SAFEGUARD, min(seen, 100.0) * math.sqrt(n)))
        effect = max(effect, low / math.sqrt(n))
    for total in range(n + 1, most + 1):
        critical = _critical(total, alpha)
        if (
            math.isfinite(critical)
            and nctdtr(total - 1, effect * math.sqrt(total), critical) <= 1 - _POWER
        ):
            return total
    return None


def _critical(n: int, alpha: float) -> float:
    """The |t| of n differences from which their evidence is 1 / alpha; infinite for too few."""
    wide = 1 + n * _PRIOR
    needed = (2 * math.log(1 / alpha) + math.log(wide)) / n
    if needed >= math.log(wide):
        return math.inf
    ratio = math.expm1(needed) / (1 - math.exp(needed) / wide)
    return math.sqrt((n - 1) * ratio)
