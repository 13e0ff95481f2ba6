"""Compare two configurations of a family, so that all its comparisons hold together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from tune_sentcl.judging.seed_blocks import Contrast, Scores, SeedBlocks, paired
from tune_sentcl.judging.statistics import (
    critical_t,
    dunnett_p,
    log_evidence,
    sequential_critical,
    tukey_p,
    two_sided_p,
)
from tune_sentcl.store.union import TOLERANCE

Verdict = Literal["ESTABLISHED", "NO DIFFERENCE", "REVERSED", "UNDECIDED"]
Procedure = Literal["Dunnett", "Tukey", "Bonferroni t", "sequential t", "exact"]

PLANNED_SHARE = 0.8
"""The part of the error probability of the planned seeds; all later ones have the rest."""


@dataclass(frozen=True)
class ComparisonRules:
    """The limits of a comparison.

    Attributes:
        alpha: The probability of any false claim among all comparisons of a study.
        smallest: A difference of at most this many points counts as none.
        max_seeds: The largest number of seeds to ask for.
    """

    alpha: float = 0.05
    smallest: float = TOLERANCE
    max_seeds: int = 100


@dataclass(frozen=True)
class Comparison:
    """The evidence for the claim that the first of two configurations scores higher.

    Attributes:
        verdict: ESTABLISHED if the interval lies above 0, REVERSED if below; NO DIFFERENCE if it
            lies within the smallest difference that counts, which goes first; else UNDECIDED.
        procedure: What gave interval and p-value.
        difference: The estimated difference, first minus second, in points.
        low: Lower end of the interval, which holds for all comparisons of the family together.
        high: Its upper end.
        t: The difference divided by its standard error.
        level: The probability with which all intervals of the family hold.
        error: The standard error of the difference.
        df: The degrees of freedom of the error.
        n: The number of seeds.
        configurations: How many are compared together.
        number: How many comparisons Bonferroni's correction counts.
        pooled: Whether the noise is that of all configurations together.
        fallen: Whether a collapsed seed of the higher one alone left the claim undecided.
    """

    verdict: Verdict
    procedure: Procedure
    difference: float
    low: float
    high: float
    t: float
    level: float
    error: float
    df: float
    n: float
    configurations: int
    number: int = 1
    pooled: bool = True
    fallen: bool = False

    @property
    def noise(self) -> float:
        """The sd of one score, such that a difference has the error noise * sqrt(2 / n)."""
        return self.error * math.sqrt(self.n / 2)

    @cached_property
    def p(self) -> float:
        """The p-value, corrected for all comparisons of the family.

        It is at most alpha if and only if the interval excludes 0.
        """
        match self.procedure:
            case "Dunnett":
                return dunnett_p(self.t, self.configurations - 1, self.df)
            case "Tukey":
                return tukey_p(self.t, self.configurations, self.df)
            case "Bonferroni t":
                return min(1.0, self.number * two_sided_p(self.t, self.df))
            case "sequential t":
                evidence = log_evidence(self.t, self.df, self.n)
                return min(1.0, self.number * math.exp(-max(0.0, evidence)))
            case "exact":
                return 0.0 if self.t else 1.0


@dataclass(frozen=True)
class Family:
    """Configurations whose comparisons hold together.

    Attributes:
        scores: Of the configurations that draw, by seed.
        constants: The score of each configuration that does not depend on the seed.
        tried: How many configurations there are, with those that have no complete scores.
        alpha: The probability of any false claim.
        fixed: Whether the number of seeds was fixed before any score was seen. If not, the
            comparisons hold at any number of seeds.
        control: The configuration that all others are compared with, if that was fixed too.
        fallen: Configurations of which a seed collapsed, in these scores or in others.
        known: The blocks of these scores, if the caller has them.
    """

    scores: Scores
    constants: Mapping[str, float] = field(default_factory=dict)
    tried: int = 0
    alpha: float = 0.05
    fixed: bool = False
    control: str | None = None
    fallen: frozenset[str] = frozenset()
    known: SeedBlocks | None = None

    @cached_property
    def blocks(self) -> SeedBlocks:
        """The scores with their noise."""
        return self.known or SeedBlocks(self.scores)

    @property
    def names(self) -> set[str]:
        """The configurations with scores."""
        return {*self.scores, *self.constants}

    @property
    def count(self) -> int:
        """The number of configurations that are compared."""
        return max(self.tried, len(self.scores) + len(self.constants))

    def compare(self, first: str, second: str, smallest: float = TOLERANCE) -> Comparison | None:
        """Compare two configurations; None if nothing estimates the noise of their difference.

        Args:
            first: The configuration that is claimed to score higher.
            second: The one that it is compared with.
            smallest: A difference of at most this many points counts as none.
        """
        if first in self.constants and second in self.constants:
            return self._exact(self.constants[first] - self.constants[second], smallest)
        found = self._contrast(first, second)
        if found is None:
            return None
        if found.error:
            t = found.difference / found.error
        else:
            t = math.inf if abs(found.difference) > TOLERANCE else 0.0
            smallest = max(smallest, TOLERANCE)
        procedure, number, needed = self._procedure(found, self.control in (first, second))
        reach = needed * found.error if found.error or math.isinf(needed) else 0.0
        low, high = found.difference - reach, found.difference + reach
        verdict = _verdict(low, high, smallest)
        fallen = self._only_better_fell(verdict, first, second)
        return Comparison(
            verdict="UNDECIDED" if fallen else verdict,
            procedure=procedure,
            difference=found.difference,
            low=low,
            high=high,
            t=t,
            level=1 - self.alpha,
            error=found.error,
            df=found.df,
            n=found.n,
            configurations=self.count,
            number=number,
            pooled=found.pooled,
            fallen=fallen,
        )

    def _only_better_fell(self, verdict: Verdict, first: str, second: str) -> bool:
        """Whether the better one has a collapsed seed and the other has none."""
        better, worse = (first, second) if verdict == "ESTABLISHED" else (second, first)
        fallen = self.blocks.collapsed.keys() | self.fallen
        decided = verdict in ("ESTABLISHED", "REVERSED")
        return decided and better in fallen and worse not in fallen

    def _procedure(self, found: Contrast, is_control: bool) -> tuple[Procedure, int, float]:
        """The procedure, the comparisons that it corrects for, and the critical |t|."""
        count = self.count
        pairs = count * (count - 1) // 2
        if not self.fixed:
            needed = sequential_critical(found.df, found.n, self.alpha / pairs)
            return "sequential t", pairs, needed
        if not found.pooled:
            number = count - 1 if is_control else pairs
            needed = critical_t(found.df, 2, self.alpha / number, with_control=True)
            return "Bonferroni t", number, needed
        needed = critical_t(found.df, count, self.alpha, with_control=is_control)
        return "Dunnett" if is_control else "Tukey", pairs, needed

    def _contrast(self, first: str, second: str) -> Contrast | None:
        """The difference; a constant counts as the same score with every seed."""
        for one, other, sign in ((first, second, 1.0), (second, first, -1.0)):
            if other in self.constants:
                found = np.array(list(self.scores[one].values())) - self.constants[other]
                return self._to_constant(one, sign * found)
        return self.blocks.contrast(first, second)

    def _to_constant(self, name: str, differences: np.ndarray) -> Contrast | None:
        """The difference to a constant, in which the effects of the seeds do not cancel.

        Where all configurations have equal seeds, the variance of one score is that of all
        together: of seeds and noise, with the degrees of freedom of Satterthwaite (1946).
        """
        blocks = self.blocks
        even = [row for row, one in enumerate(blocks.names) if one not in blocks.apart]
        table = blocks.table[even]
        k, n = table.shape
        if name in blocks.apart or k < 2 or n < 2 or np.isnan(table).any() or not self.fixed:
            return paired(differences)
        parts = np.array([(k - 1) * blocks.sd**2, k * float(table.mean(axis=0).var(ddof=1))]) / k
        total = float(parts.sum())
        degrees = parts**2 / ((n - 1) * np.array([k - 1, 1]))
        df = math.floor(total**2 / float(degrees.sum())) if total else n - 1
        error = math.sqrt(total / n)
        return Contrast(float(differences.mean()), error, df, float(n), pooled=False)

    def _exact(self, difference: float, smallest: float) -> Comparison:
        """Compare two scores that no seed changes: the sign decides."""
        verdict = _verdict(difference, difference, max(smallest, TOLERANCE))
        t = math.inf if abs(difference) > TOLERANCE else 0.0
        known = (difference, difference, difference, t, 1.0, 0.0, math.inf, 1.0)
        return Comparison(verdict, "exact", *known, self.count)


def _verdict(low: float, high: float, smallest: float) -> Verdict:
    if -smallest <= low and high <= smallest:
        return "NO DIFFERENCE"
    if low > 0:
        return "ESTABLISHED"
    return "REVERSED" if high < 0 else "UNDECIDED"
