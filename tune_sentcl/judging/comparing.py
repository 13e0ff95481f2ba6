"""Compare configurations on the same seeds, with intervals that hold for a whole family together.

The model is a randomized block design with seeds as blocks, fitted by least squares: a score is an
effect of the configuration plus an effect of the seed plus noise.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float64
from scipy.special import fdtrc

from tune_sentcl.judging.statistics import critical_t, dunnett_p, tukey_p, two_sided_p
from tune_sentcl.store.union import TOLERANCE

Scores = Mapping[str, Mapping[int, float]]
"""The scores of each configuration, by seed."""

Table = Float64[np.ndarray, "k n"]
"""One row per configuration, one column per seed."""

Verdict = Literal["ESTABLISHED", "NO DIFFERENCE", "REVERSED", "UNDECIDED"]
Procedure = Literal["Dunnett", "Tukey", "Bonferroni t", "exact"]

ALPHA = 0.04
"""The probability of a false claim among the comparisons of one procedure.

At this level, Dunnett's and Tukey's comparisons of one study together stay near 5 %.
"""
_FALL = 8.0
"""A collapsed seed lies more than this many standard deviations of the noise below the others."""
# The probability that a configuration with an ordinary spread counts as having a greater spread.
_UNEVEN = 0.04
# The standard deviation of a normal variable is this many median absolute deviations.
_NORMAL_MAD = 1.4826


@dataclass(frozen=True)
class Comparison:
    """The evidence for the claim that the first of two configurations scores higher.

    Attributes:
        verdict: NO DIFFERENCE if the interval lies within plus and minus the smallest difference
            that counts; else ESTABLISHED if it lies above 0, REVERSED if below 0, otherwise
            UNDECIDED.
        procedure: The procedure that gave interval and p-value.
        difference: The estimated difference, first minus second, in points.
        error: The standard error of the difference.
        df: The degrees of freedom of the error.
        n: The number of seeds.
        low: Lower end of the interval, which holds for all comparisons of the family together.
        high: Upper end of the interval.
        level: The probability with which all intervals of the family hold.
        configurations: How many configurations the family has.
        number: How many comparisons Bonferroni's correction counts.
        seeds: The seeds whose scores were compared.
    """

    verdict: Verdict
    procedure: Procedure
    difference: float
    error: float
    df: float
    n: int
    low: float
    high: float
    level: float
    configurations: int
    number: int
    seeds: tuple[int, ...] = ()

    @cached_property
    def p(self) -> float:
        """The p-value, corrected for all comparisons of the family.

        It is at most alpha if and only if the interval excludes 0.
        """
        if not self.error:
            return 0.0 if abs(self.difference) > TOLERANCE else 1.0
        t = self.difference / self.error
        if self.procedure == "Dunnett":
            return dunnett_p(t, self.configurations, self.df)
        if self.procedure == "Tukey":
            return tukey_p(t, self.configurations, self.df)
        return min(1.0, self.number * two_sided_p(t, self.df))


class SeedBlocks:
    """The noise of several configurations that ran the same seeds.

    A configuration with a collapsed seed, or with a much greater spread than the others, is
    excluded from the estimate of the noise. A configuration with a moderately greater spread is
    included, because leaving out the widest of equal configurations would make the estimate too
    low. For both kinds, the noise does not describe a difference.

    Attributes:
        names: The configurations.
        table: Their scores.
        apart: The configurations with a collapsed seed or a greater spread.
        sd: The standard deviation of the noise of one score; NaN if it cannot be estimated.
        df: The degrees of freedom of `sd`.
    """

    def __init__(self, scores: Scores, collapsed: Collection[str] = ()) -> None:
        """Estimate the noise.

        Args:
            scores: The scores of configurations that depend on the seed; all have the same seeds.
            collapsed: The configurations with a collapsed seed.
        """
        self.names = list(scores)
        self.table = _table(scores)
        pool = [row for row, name in enumerate(self.names) if name not in collapsed]
        residuals, p = _residuals(self.table[pool])
        while len(pool) > 2 and p.min() * len(pool) < _UNEVEN:
            del pool[int(p.argmin())]
            residuals, p = _residuals(self.table[pool])
        even = {self.names[row] for row, own_p in zip(pool, p, strict=True) if own_p >= _UNEVEN}
        self.apart = frozenset(self.names) - even
        self.df = max(len(pool) - 1, 0) * max(self.table.shape[1] - 1, 0)
        self.sd = math.sqrt(float((residuals**2).sum()) / self.df) if self.df else math.nan


@dataclass(frozen=True)
class Family:
    """Configurations whose comparisons hold together, on seeds that no score has chosen.

    Attributes:
        scores: The scores of configurations that depend on the seed; all have the same seeds.
        constants: The score of each configuration that does not depend on the seed.
        tried: How many configurations there are, including those without complete scores.
        alpha: The probability of any false claim.
        control: The configuration with which all others are compared; empty if none was fixed.
        collapsed: The configurations with a collapsed seed.
    """

    scores: Scores
    constants: Mapping[str, float] = field(default_factory=dict)
    tried: int = 0
    alpha: float = ALPHA
    control: str = ""
    collapsed: Collection[str] = frozenset()

    @cached_property
    def blocks(self) -> SeedBlocks:
        """The scores with their noise."""
        return SeedBlocks(self.scores, self.collapsed)

    def compare(self, first: str, second: str, smallest: float = TOLERANCE) -> Comparison | None:
        """Compare two configurations; None if the family lacks one of them or its noise.

        Args:
            first: The configuration that is claimed to score higher.
            second: The configuration with which `first` is compared.
            smallest: A difference of at most this many points counts as no difference.
        """
        if not {first, second} <= self.scores.keys() | self.constants.keys():
            return None
        noise = self._noise(first, second)
        if noise is None:
            return None
        procedure, error, df = noise
        differences = self._values(first) - self._values(second)
        difference, is_control = float(differences.mean()), self.control in (first, second)
        count = max(self.tried, len(self.scores) + len(self.constants))
        number, together = 1, count
        if procedure == "Bonferroni t":
            number, together = count - 1 if is_control else count * (count - 1) // 2, 2
        reach = 0.0
        if error:
            alpha = self.alpha / number
            reach = error * critical_t(df, together, alpha, with_control=is_control)
        low, high = difference - reach, difference + reach
        return Comparison(
            verdict=_verdict(low, high, smallest if error else max(smallest, TOLERANCE)),
            procedure=procedure,
            difference=difference,
            error=error,
            df=df,
            n=len(differences),
            low=low,
            high=high,
            level=1.0 if procedure == "exact" else 1 - self.alpha,
            configurations=count,
            number=number,
            seeds=tuple(next(iter(self.scores.values()), ())),
        )

    def _values(self, name: str) -> Float64[np.ndarray, " n"]:
        """The scores by seed; a configuration that does not depend on the seed has one score."""
        if name in self.constants:
            return np.array([self.constants[name]])
        values: Float64[np.ndarray, " n"] = self.blocks.table[self.blocks.names.index(name)]
        return values

    def _noise(self, first: str, second: str) -> tuple[Procedure, float, float] | None:
        """The procedure, the standard error of the difference and its df; None if unknown."""
        blocks, drawn = self.blocks, [name for name in (first, second) if name in self.scores]
        n = blocks.table.shape[1]
        if not drawn:
            return "exact", 0.0, math.inf
        if n < 2:
            return None
        if blocks.df and blocks.apart.isdisjoint(drawn):
            if len(drawn) == 2:
                error = blocks.sd * math.sqrt(2 / n)
                return "Dunnett" if self.control in drawn else "Tukey", error, blocks.df
            if len(blocks.names) - len(blocks.apart) > 1:
                return "Bonferroni t", *self._noise_with_seeds()
        differences = self._values(first) - self._values(second)
        return "Bonferroni t", float(differences.std(ddof=1)) / math.sqrt(n), n - 1

    def _noise_with_seeds(self) -> tuple[float, float]:
        """The standard error of a mean that includes the seeds' effects, and its df.

        It serves a comparison with a constant score. The variance of a score is that of seeds and
        noise of all configurations together, with the degrees of freedom of Satterthwaite (1946).
        """
        blocks = self.blocks
        table = blocks.table[[name not in blocks.apart for name in blocks.names]]
        k, n = table.shape
        parts = np.array([(k - 1) / k * blocks.sd**2, float(table.mean(axis=0).var(ddof=1))])
        total = float(parts.sum())
        degrees = parts**2 / ((n - 1) * np.array([k - 1, 1]))
        df = math.floor(total**2 / float(degrees.sum())) if total else n - 1
        return math.sqrt(total / n), df


def _verdict(low: float, high: float, smallest: float) -> Verdict:
    if -smallest <= low and high <= smallest:
        return "NO DIFFERENCE"
    if low > 0:
        return "ESTABLISHED"
    return "REVERSED" if high < 0 else "UNDECIDED"


def _table(scores: Scores) -> Table:
    """The scores as a table; NaN if a configuration lacks a seed that another has."""
    seeds = sorted({seed for own in scores.values() for seed in own})
    rows = [[own.get(seed, math.nan) for seed in seeds] for own in scores.values()]
    return np.array(rows, np.float64).reshape(len(rows), len(seeds))


def _residuals(table: Table) -> tuple[Table, Float64[np.ndarray, " k"]]:
    """The noise of each score, and for each row the p-value of its F test against the others."""
    k, n = table.shape
    if k < 2 or n < 2:
        return np.zeros_like(table), np.ones(k)
    residuals = table - table.mean(axis=1, keepdims=True)
    residuals -= residuals.mean(axis=0)
    # Leaving the row out of the fit reduces the sum of squares by this much.
    own = (residuals**2).sum(axis=1) * k / (k - 1)
    others = (residuals**2).sum() - own
    ratio = np.divide(own * (k - 2), others, out=np.zeros(k), where=others > TOLERANCE**2)
    return residuals, fdtrc(n - 1, max(k - 2, 1) * (n - 1), ratio)


def collapsed_seeds(scores: Scores) -> dict[str, list[int]]:
    """Find seeds whose scores are far below the expectation for their configuration and seed.

    Medians estimate the expectation and the noise, because several collapsed seeds would distort
    means.

    Args:
        scores: The scores of configurations that depend on the seed; their seeds may differ.

    Returns:
        The collapsed seeds by configuration, for configurations that have some.
    """
    scores = {name: own for name, own in scores.items() if own}
    table = _table(scores)
    if min(table.shape) < 2:
        return {}
    deviations = table - np.nanmedian(table, axis=1, keepdims=True)
    # Of two middle values, the upper is taken, so that with two configurations the lower score can
    # count as fallen.
    deviations -= np.nanquantile(deviations, 0.5, axis=0, method="higher")
    sizes = np.abs(deviations[~np.isnan(deviations) & (deviations != 0)])
    noise = _NORMAL_MAD * float(np.median(sizes)) if len(sizes) else 0.0
    seeds = np.array(sorted({seed for own in scores.values() for seed in own}))
    fallen = deviations < -max(_FALL * noise, TOLERANCE)
    return {
        name: seeds[row].tolist() for name, row in zip(scores, fallen, strict=True) if row.any()
    }
