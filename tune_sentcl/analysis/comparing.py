"""Whether the seeds at hand show that one configuration scores higher than another."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from tune_sentcl.analysis.statistics import (
    differences,
    holm,
    lasting_interval,
    log_evidence,
    mean,
    p_values,
    sd,
    seeds_needed,
)

Verdict = Literal["ESTABLISHED", "NOT ESTABLISHED", "NEEDS MORE SEEDS"]
Scores = Mapping[str, Mapping[int, float]]
"""Of each configuration its score by seed."""

FEWEST = 3
"""Seeds without which no variance is worth planning by."""


@dataclass(frozen=True)
class Rules:
    """When a claim stands.

    Attributes:
        alpha: The chance to establish, at any time, any difference that there is not.
        most: Seeds of a configuration beyond which nobody is asked for more.
    """

    alpha: float = 0.05
    most: int = 100


@dataclass(frozen=True)
class Comparison:
    """What the seeds say of the claim that the first of two configurations scores higher.

    Attributes:
        verdict: Whether they establish it.
        more_seeds: How many more of each would, by the difference and the variance seen; None
            where none are asked for.
        reverse: Whether they establish that the second one scores higher.
        values: The differences, first minus second, one a seed.
        paired: Whether they are of seeds that both have; else the seeds of each were matched.
        low: Lower end of the interval of the difference that holds at all times, for all
            comparisons of the study together; minus infinity for too few seeds.
        high: Its upper end.
        p: Of this comparison alone, at all times.
        p_corrected: By Holm, for all comparisons of the study; where `p` is above alpha, by
            Bonferroni, which is no smaller.
        comparisons: How many those are.
        drawn: Whether a seed has a part in either; if not, the one difference is all there is.
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


def settle(difference: float, tried: int, least: float) -> Comparison:
    """Judge two configurations of which each has one score, whatever the seed is.

    There is no chance in it: the sign is the verdict.

    Args:
        difference: First minus second.
        tried: How many configurations were tried.
        least: A difference up to that is none.
    """
    shown = abs(difference) > least
    p = 0.0 if shown else 1.0
    return Comparison(
        verdict="ESTABLISHED" if shown and difference > 0 else "NOT ESTABLISHED",
        more_seeds=None,
        reverse=shown and difference < 0,
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
    scores: Scores, first: str, second: str, rules: Rules | None = None, tried: int = 0
) -> Comparison:
    """Judge whether one configuration scores higher than another.

    Whoever names two configurations has mostly seen the scores of all, and may have picked the two
    by them. So every pair of configurations that were tried counts as a comparison, and what is
    established of any of them at any time is wrong with probability alpha at most: also of the
    best one, and also where more seeds are run until a claim stands.

    Args:
        scores: Every configuration that was measured.
        first: Who is claimed to score higher; it has a score.
        second: Whom it is compared with; likewise.
        rules: When a claim stands.
        tried: How many configurations were tried, with those that were stopped before they had a
            score; those in `scores` at least.
    """
    rules = rules or Rules()
    values, paired = differences(scores[first], scores[second], FEWEST)
    count = max(tried, len(scores))
    comparisons = max(1, count * (count - 1) // 2)
    each = rules.alpha / comparisons
    n, centre, spread = len(values), mean(values), sd(values)
    p = float(p_values(log_evidence(*map(np.array, (float(n), centre, spread)))))
    corrected = min(1.0, comparisons * p)
    if p <= rules.alpha:
        corrected = _corrected(scores, p, comparisons)
    shown = corrected <= rules.alpha
    more = None
    if n < FEWEST:
        more = FEWEST - n
    elif centre > 0 and not shown:
        total = seeds_needed(values, each, rules.most)
        more = None if total is None else total - n
    verdict: Verdict = "NEEDS MORE SEEDS" if more else "NOT ESTABLISHED"
    low, high = lasting_interval(values, each)
    return Comparison(
        verdict="ESTABLISHED" if shown and centre > 0 else verdict,
        more_seeds=more,
        reverse=shown and centre < 0,
        values=tuple(values),
        paired=paired,
        low=low,
        high=high,
        p=p,
        p_corrected=corrected,
        comparisons=comparisons,
    )


def _corrected(scores: Scores, p: float, comparisons: int) -> float:
    """Holm's corrected value of a p-value among those of all pairs with common seeds.

    Pairs without them count as 1, which is never too small.
    """
    seeds = sorted({seed for values in scores.values() for seed in values})
    table = np.full((len(scores), len(seeds)), math.nan)
    for row, values in enumerate(scores.values()):
        for column, seed in enumerate(seeds):
            table[row, column] = values.get(seed, math.nan)
    smaller = [found[found < p] for row in range(len(table)) for found in [_against(table, row)]]
    return float(holm(np.append(np.concatenate(smaller), p), comparisons)[-1])


def _against(table: Float64[np.ndarray, "k seeds"], row: int) -> Float64[np.ndarray, " rest"]:
    """The p-values of a configuration against those below it."""
    found = table[row] - table[row + 1 :]
    count = (~np.isnan(found)).sum(axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = np.nansum(found, axis=1) / count
        squares = np.nansum((found - centre[:, None]) ** 2, axis=1)
        return p_values(log_evidence(count, centre, np.sqrt(squares / (count - 1))))
