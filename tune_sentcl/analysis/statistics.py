"""What a few seeds can say: the statistics of a study, each with its source."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return math.fsum(values) / len(values) if len(values) else math.nan


def sd(values: Sequence[float]) -> float:
    """The standard deviation, n - 1 under the root; NaN for fewer than two values."""
    return float(np.std(np.asarray(values, np.float64), ddof=1)) if len(values) > 1 else math.nan


def prediction_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Where one more observation of the same kind lies, with this probability.

    `mean -+ t * sd * sqrt(1 + 1/n)` with Student's t of n - 1 degrees of freedom, for normal
    values: Hahn and Meeker, Statistical Intervals (1991), section 4.7.

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
