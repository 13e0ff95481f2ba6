"""Statistics over a few seeds, each with its source.

All functions accept scores in any unit; a standard deviation divides by n - 1.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtr, stdtrit
from scipy.stats import nct, studentized_range

POWER = 0.8
"""The probability with which planned seeds should show a difference."""


def mean(values: Sequence[float]) -> float:
    """The mean; NaN for no values."""
    return math.fsum(values) / len(values) if len(values) else math.nan


def sd(values: Sequence[float]) -> float:
    """The standard deviation (n - 1); NaN for fewer than two values."""
    return float(np.std(np.asarray(values, np.float64), ddof=1)) if len(values) > 1 else math.nan


def two_sided_p(t: float, df: float) -> float:
    """The p-value of Student's t for one comparison."""
    return 2 * float(stdtr(df, -abs(t)))


def tukey_p(t: float, configurations: int, df: float) -> float:
    """The p-value of one of all pairs of means (Tukey 1953), by the studentized range.

    Args:
        t: The difference divided by its standard error.
        configurations: The number of means.
        df: The degrees of freedom of the error.
    """
    if configurations == 2:
        return two_sided_p(t, df)
    return float(studentized_range.sf(abs(t) * math.sqrt(2), configurations, df))


@lru_cache(maxsize=1024)
def dunnett_p(t: float, configurations: int, df: float) -> float:
    """The p-value of one of the comparisons of a control with all others (Dunnett 1955).

    The t statistics are multivariate t with correlation 0.5. Given the control's mean and the
    error, they are independent, so two one-dimensional integrals suffice, without random numbers.

    Args:
        t: The difference divided by its standard error.
        configurations: The number of means, with the control.
        df: The degrees of freedom of the error.
    """
    if configurations == 2:
        return two_sided_p(t, df)
    errors, control = np.sqrt(chdtri(df, 1 - _MIDDLES) / df)[:, None], _NORMALS[None, :]
    reach = math.sqrt(2) * abs(t) * errors
    inside = (ndtr(reach + control) - ndtr(control - reach)) ** (configurations - 1)
    # The p-value of a single comparison is a lower bound, which replaces an inexact result of the
    # quadrature.
    return max(two_sided_p(t, df), 1 - float(inside @ _WEIGHTS @ _MIDDLE_WEIGHTS))


_NORMALS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_MIDDLES, _MIDDLE_WEIGHTS = np.polynomial.legendre.leggauss(200)
_MIDDLES, _MIDDLE_WEIGHTS = (_MIDDLES + 1) / 2, _MIDDLE_WEIGHTS / 2


@lru_cache(maxsize=1024)
def critical_t(df: float, configurations: int, alpha: float, *, with_control: bool) -> float:
    """The |t| whose p-value is alpha; infinite without degrees of freedom.

    Args:
        df: The degrees of freedom of the error.
        configurations: How many configurations are compared together.
        alpha: The probability of a false claim among all comparisons.
        with_control: Whether one configuration is compared with all others (`dunnett_p`) instead
            of all pairs (`tukey_p`).
    """
    if not df:
        return math.inf
    p_value = dunnett_p if with_control else tukey_p
    # Bonferroni's correction for all pairs needs a greater t than either test, so that t is the
    # search's upper limit.
    most = -float(stdtrit(df, alpha / (configurations * (configurations - 1)))) + 1e-6
    return float(brentq(lambda t: p_value(t, configurations, df) - alpha, 0.0, most, xtol=1e-10))


def chance_of(shift: float, df: float, critical: float) -> float:
    """The probability that a t statistic exceeds a critical value.

    Args:
        shift: The true difference divided by its standard error.
        df: The degrees of freedom of the error.
        critical: The critical value.
    """
    return 0.0 if math.isinf(critical) else float(nct.sf(critical, df, shift))


def smallest_shown(
    seeds: int, configurations: int, alpha: float, drawn: int | None = None
) -> float:
    """The smallest difference to a baseline that seeds show with probability `POWER`.

    Args:
        seeds: The number of seeds of each configuration.
        configurations: How many configurations are compared.
        alpha: The probability of a false claim.
        drawn: How many of the configurations have scores that depend on the seed; None: all.

    Returns:
        The difference in standard deviations of the noise; infinite for one seed.
    """
    df = (seeds - 1) * max((drawn or configurations) - 1, 1)
    needed = critical_t(df, configurations, alpha, with_control=True)
    if math.isinf(needed):
        return math.inf
    shift = brentq(lambda shift: nct.sf(needed, df, shift) - POWER, 0.0, needed * 4 + 10)
    return float(shift) * math.sqrt(2 / seeds)
