"""Statistics over a few seeds, each with its source.

All functions accept scores in any unit; a standard deviation divides by n - 1.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.special import nctdtr, nctdtrinc, ndtr, stdtrit

Values = Float64[np.ndarray, "n"]

_PRIOR = 4.0
"""Variance of the effects that `log_evidence` expects, in sds of the differences.

In a simulation over 1, 2, 4, 9 and 16, this value needed the fewest seeds for differences of 1 to
10 sds of a seed. It changes only how many seeds are needed, never the error probability.
"""
_POWER = 0.9
_SAFEGUARD = 0.8
_LARGE = math.sqrt(2)  # of the differences of two independent seeds: 2 sds of a seed
_DRAWS = 10_000


def mean(values: Sequence[float]) -> float:
    """The mean; NaN for no values."""
    return math.fsum(values) / len(values) if len(values) else math.nan


def sd(values: Sequence[float]) -> float:
    """The standard deviation (n - 1); NaN for fewer than two values."""
    return float(np.std(np.asarray(values, np.float64), ddof=1)) if len(values) > 1 else math.nan


def prediction_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The interval that contains one more observation of the same kind with this probability.

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
    half_width = float(stdtrit(n - 1, (1 + level) / 2)) * sd(values) * math.sqrt(1 + 1 / n)
    return mean(values) - half_width, mean(values) + half_width


def differences(
    first: Mapping[int, float], second: Mapping[int, float], fewest: int = 3
) -> tuple[list[float], bool]:
    """The differences per seed, first minus second.

    Seeds that both have are paired, which cancels the effect of the seed. With fewer than
    `fewest` common seeds, the seeds of each are matched in their order. This compares two means
    exactly, whatever their variances (Scheffe 1943, Annals of Mathematical Statistics 14, 35-44),
    with the degrees of freedom of the smaller sample. Which seeds are matched must not depend on
    the scores.

    Args:
        first: Score by seed.
        second: Score by seed.
        fewest: With this many common seeds, all other seeds are left out.

    Returns:
        The differences, and whether they are between common seeds.
    """
    common = sorted(first.keys() & second.keys())
    if len(common) >= min(fewest, len(first), len(second)):
        return [first[seed] - second[seed] for seed in common], True
    ordered = [[values[seed] for seed in sorted(values)] for values in (first, second)]
    return [a - b for a, b in zip(*ordered, strict=False)], False


def log_evidence(
    count: Float64[np.ndarray, "*pairs"],
    centre: Float64[np.ndarray, "*pairs"],
    spread: Float64[np.ndarray, "*pairs"],
) -> Float64[np.ndarray, "*pairs"]:
    """Logarithm of the evidence that normal differences have a mean other than 0.

    This is the likelihood of Student's t under effects drawn from N(0, 4), divided by that under
    no effect. It is a test martingale as seeds are added. By Ville's inequality, without a
    difference it ever reaches 1 / alpha with probability at most alpha, whatever the variance.
    One may therefore test after each seed and stop at any time. Lai (1976, Annals of Statistics
    4, 265-280) with the Gaussian mixture of Wang and Ramdas (2025, Sequential Analysis 44,
    56-110); closed form as in Gonen et al. (2005, The American Statistician 59, 252-257).

    Args:
        count: The number of differences of each pair.
        centre: Their means.
        spread: Their sds; NaN counts as no evidence.
    """
    wide = 1 + count * _PRIOR
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = count * (centre / spread) ** 2 / (count - 1)  # t^2 over its degrees of freedom
        # log((1 + r) / (1 + r / wide)), exact also for infinite r, where differences are equal
        gain = np.log(wide) - np.log1p((wide - 1) / (1 + ratio))
    found = (count * gain - np.log(wide)) / 2
    return np.where((count > 1) & ~np.isnan(ratio), found, 0.0)


def anytime_p_values(evidence: Float64[np.ndarray, "*pairs"]) -> Float64[np.ndarray, "*pairs"]:
    """Anytime-valid p-values: 1 over the evidence of `log_evidence`."""
    found: Float64[np.ndarray, "*pairs"] = np.exp(-np.maximum(evidence, 0.0))
    return found


def holm(found: Values, count: int | None = None) -> Values:
    """Correct p-values for their number: Holm (1979, Scand. J. Statistics 6, 65-70).

    The claims whose corrected value is at most alpha all hold with probability 1 - alpha, however
    the p-values depend on each other. Anytime validity is kept: the claims established at one
    time are among those with the smallest values over all times.

    Args:
        found: The p-values.
        count: Their number, including values of exactly 1 that are not passed; None: `len(found)`.
    """
    order = np.argsort(found, kind="stable")
    factors = (len(found) if count is None else count) - np.arange(len(found))
    corrected = np.minimum(1.0, np.maximum.accumulate(found[order] * factors))
    result = np.empty(len(found))
    result[order] = corrected
    return result


def confidence_sequence(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Confidence sequence: contains the mean difference at all times with probability 1 - alpha.

    It holds the means that `log_evidence` does not reject.

    Args:
        values: The differences.
        alpha: The error probability.

    Returns:
        The lower and the upper end; minus and plus infinity for too few differences.
    """
    n = len(values)
    half_width = _critical(n, alpha) * sd(values) / math.sqrt(n) if n > 1 else math.nan
    if not math.isfinite(half_width):
        return -math.inf, math.inf
    return mean(values) - half_width, mean(values) + half_width


def bootstrap_interval(
    values: Sequence[float], level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of the mean.

    Its percentiles are widened for small n as Student's t is: the expanded percentile interval of
    Hesterberg (2015, The American Statistician 69, 371-386).

    Args:
        values: One score or difference per seed.
        level: The nominal coverage.
        seed: Seed of the resampling.

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
    """How many seeds establish a difference like the observed one with probability 0.9.

    The planned effect is the observed mean divided by the sd of the differences. With few seeds a
    large observed effect is usually luck. An effect above a difference of 2 sds of a seed is
    therefore reduced to that, unless its lower 80 % limit is larger (a safeguard, as in Perugini,
    Gallucci and Costantini 2014, Perspectives on Psychological Science 9, 319-332). The power is
    that of the noncentral t.

    Args:
        values: At least two differences.
        alpha: The error probability, corrected for the number of comparisons.
        most: The largest number to return.

    Returns:
        The number including the seeds in `values`; None if `most` seeds are too few.
    """
    n, spread = len(values), sd(values)
    seen = abs(mean(values)) / spread if spread else (math.inf if mean(values) else 0.0)
    effect = min(seen, _LARGE)
    if seen > _LARGE:
        # `nctdtrinc` needs a bound; larger effects give the same result.
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
    """The |t| of n differences whose evidence is 1 / alpha; infinite if n is too small."""
    wide = 1 + n * _PRIOR
    needed = (2 * math.log(1 / alpha) + math.log(wide)) / n
    if needed >= math.log(wide):
        return math.inf
    ratio = math.expm1(needed) / (1 - math.exp(needed) / wide)
    return math.sqrt((n - 1) * ratio)
