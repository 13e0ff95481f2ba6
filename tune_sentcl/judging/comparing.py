"""Compare two configurations by their scores over seeds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from tune_sentcl.judging.statistics import (
    anytime_p_values,
    confidence_sequence,
    differences,
    holm,
    log_evidence,
    mean,
    sd,
    seeds_needed,
)

Verdict = Literal["ESTABLISHED", "NOT ESTABLISHED", "NEEDS MORE SEEDS"]
Scores = Mapping[str, Mapping[int, float]]
"""The scores of each configuration, by seed."""

MIN_SEEDS = 3
"""The fewest seeds whose variance is used to plan further seeds."""


@dataclass(frozen=True)
class ComparisonRules:
    """The limits of a comparison.

    Attributes:
        alpha: The probability of establishing, at any time, a difference that does not exist.
        max_seeds: The largest number of seeds per configuration to ask for.
    """

    alpha: float = 0.05
    max_seeds: int = 100


@dataclass(frozen=True)
class Comparison:
    """The evidence for the claim that the first of two configurations scores higher.

    Attributes:
        verdict: Whether the claim is established.
        more_seeds: How many more seeds of each configuration would establish the claim, if the
            observed difference and variance are the true ones; None: do not ask for more.
        reverse: Whether it is established that the second configuration scores higher.
        values: The differences, first minus second, one per seed.
        paired: Whether each difference is between two scores of the same seed; otherwise the
            seeds of each configuration were matched in their order.
        low: Lower end of the anytime-valid confidence interval of the mean difference, corrected
            for all comparisons of the study; minus infinity for too few seeds.
        high: Its upper end.
        p: Anytime-valid p-value of this comparison alone.
        p_corrected: The p-value corrected for all comparisons of the study: by Holm, or by
            Bonferroni (which is never smaller) where `p` is above alpha.
        comparisons: The number of comparisons that are corrected for.
        drawn: Whether the score of either configuration depends on its seed; if not, `values`
            holds one exact difference.
    """

    verdict: Verdict
    more_seeds: int | None
    reverse: bool
    values: tuple[float, ...]
    paired: bool
    low: float
    high: float
    p: float
    p_corrected: float
    comparisons: int
    drawn: bool = True


def compare_constants(difference: float, tried: int, least: float) -> Comparison:
    """Compare two configurations whose scores do not depend on the seed: the sign decides.

    Args:
        difference: First minus second.
        tried: How many configurations were tried.
        least: A difference of at most this size counts as zero.
    """
    is_significant = abs(difference) > least
    p = 0.0 if is_significant else 1.0
    return Comparison(
        verdict="ESTABLISHED" if is_significant and difference > 0 else "NOT ESTABLISHED",
        more_seeds=None,
        reverse=is_significant and difference < 0,
        values=(difference,),
        paired=True,
        low=difference,
        high=difference,
        p=p,
        p_corrected=p,
        comparisons=max(1, tried * (tried - 1) // 2),
        drawn=False,
    )


def compare(
    scores: Scores, first: str, second: str, rules: ComparisonRules | None = None, tried: int = 0
) -> Comparison:
    """Judge whether one configuration scores higher than another.

    The two configurations may have been picked after seeing all scores. Therefore every pair of
    tried configurations counts as a comparison. The probability that any established claim is
    wrong is at most alpha, also for the best configuration, and also if seeds are added until a
    claim is established.

    Args:
        scores: Every configuration that was measured.
        first: The configuration that is claimed to score higher; it has a score.
        second: The configuration that it is compared with; it has a score.
        rules: The limits.
        tried: How many configurations were tried, including those that were stopped without a
            score; at least those in `scores`.
    """
    rules = rules or ComparisonRules()
    values, paired = differences(scores[first], scores[second], MIN_SEEDS)
    count = max(tried, len(scores))
    comparisons = max(1, count * (count - 1) // 2)
    each = rules.alpha / comparisons
    n, centre, spread = len(values), mean(values), sd(values)
    p = float(anytime_p_values(log_evidence(*map(np.array, (float(n), centre, spread)))))
    corrected = min(1.0, comparisons * p)
    if p <= rules.alpha:
        corrected = _corrected(scores, p, comparisons)
    is_significant = corrected <= rules.alpha
    more = None
    if n < MIN_SEEDS:
        more = MIN_SEEDS - n
    elif centre > 0 and not is_significant:
        total = seeds_needed(values, each, rules.max_seeds)
        more = None if total is None else total - n
    verdict: Verdict = "NEEDS MORE SEEDS" if more else "NOT ESTABLISHED"
    low, high = confidence_sequence(values, each)
    return Comparison(
        verdict="ESTABLISHED" if is_significant and centre > 0 else verdict,
        more_seeds=more,
        reverse=is_significant and centre < 0,
        values=tuple(values),
        paired=paired,
        low=low,
        high=high,
        p=p,
        p_corrected=corrected,
        comparisons=comparisons,
    )


def _corrected(scores: Scores, p: float, comparisons: int) -> float:
    """Holm's corrected p-value, among those of all pairs with common seeds.

    Pairs without common seeds count as 1, which is conservative.
    """
    seeds = sorted({seed for values in scores.values() for seed in values})
    table = np.full((len(scores), len(seeds)), math.nan)
    for row, values in enumerate(scores.values()):
        for column, seed in enumerate(seeds):
            table[row, column] = values.get(seed, math.nan)
    smaller = [found[found < p] for row in range(len(table)) for found in [_against(table, row)]]
    return float(holm(np.append(np.concatenate(smaller), p), comparisons)[-1])


def _against(table: Float64[np.ndarray, "k seeds"], row: int) -> Float64[np.ndarray, " rest"]:
    """The p-values of a row against each row below it."""
    found = table[row] - table[row + 1 :]
    count = (~np.isnan(found)).sum(axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = np.nansum(found, axis=1) / count
        squares = np.nansum((found - centre[:, None]) ** 2, axis=1)
        return anytime_p_values(log_evidence(count, centre, np.sqrt(squares / (count - 1))))
