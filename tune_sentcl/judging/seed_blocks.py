"""Scores of configurations with seeds as blocks: their noise, and collapsed seeds."""

import math
from collections.abc import Collection, Mapping

import numpy as np
from jaxtyping import Float64
from scipy.special import fdtrc

from tune_sentcl.store.union import TOLERANCE

Scores = Mapping[str, Mapping[int, float]]
"""The scores of each configuration, by seed."""

Table = Float64[np.ndarray, "k n"]
"""A row a configuration, a column a seed."""

_FALL = 8.0
"""A collapsed seed lies more than this many standard deviations of the noise below the others."""
_UNEVEN = 0.04  # the probability of setting apart a configuration that is like the others
_NORMAL_MAD = 1.4826  # the sd of normal values, in median absolute deviations


class SeedBlocks:
    """Several configurations that ran the same seeds: a randomized block design.

    Scores are configuration + seed + noise, by least squares. A configuration with a collapsed
    seed, or with a much greater spread than the others, does not take part in estimating the
    noise. A configuration with a moderately greater spread takes part, because without the widest
    of equal configurations the estimate is too low. The noise describes no difference with either
    kind.

    Attributes:
        names: The configurations.
        table: Their scores.
        apart: The configurations with a collapsed seed or a greater spread.
        sd: The standard deviation of the noise of one score; NaN if it cannot be estimated.
        df: Its degrees of freedom.
    """

    def __init__(self, scores: Scores, collapsed: Collection[str] = ()) -> None:
        """Estimate the noise.

        Args:
            scores: Of configurations that depend on the seed; all have the same seeds.
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


def _table(scores: Scores) -> Table:
    """The scores; NaN where a configuration lacks a seed of another."""
    seeds = sorted({seed for own in scores.values() for seed in own})
    rows = [[own.get(seed, math.nan) for seed in seeds] for own in scores.values()]
    return np.array(rows, np.float64).reshape(len(rows), len(seeds))


def _residuals(table: Table) -> tuple[Table, Float64[np.ndarray, " k"]]:
    """The noise of each score, and of each row the p-value of the F test against the others."""
    k, n = table.shape
    if k < 2 or n < 2:
        return np.zeros_like(table), np.ones(k)
    residuals = table - table.mean(axis=1, keepdims=True)
    residuals -= residuals.mean(axis=0)
    # Without a row, the sum of squares of a refit is smaller by this much.
    own = (residuals**2).sum(axis=1) * k / (k - 1)
    others = (residuals**2).sum() - own
    ratio = np.divide(own * (k - 2), others, out=np.zeros(k), where=others > TOLERANCE**2)
    return residuals, fdtrc(n - 1, max(k - 2, 1) * (n - 1), ratio)


def collapsed_seeds(scores: Scores) -> dict[str, list[int]]:
    """The seeds that fell far below what their configuration and seed lead one to expect.

    Medians give that expectation and the noise, because collapsed seeds hide each other from
    means.

    Args:
        scores: Of configurations that depend on the seed; their seeds may differ.

    Returns:
        The seeds of each configuration that has any.
    """
    scores = {name: own for name, own in scores.items() if own}
    table = _table(scores)
    if min(table.shape) < 2:
        return {}
    deviations = table - np.nanmedian(table, axis=1, keepdims=True)
    # Of two middle values the upper one, so that of two configurations either can have fallen.
    deviations -= np.nanquantile(deviations, 0.5, axis=0, method="higher")
    sizes = np.abs(deviations[~np.isnan(deviations) & (deviations != 0)])
    noise = _NORMAL_MAD * float(np.median(sizes)) if len(sizes) else 0.0
    seeds = np.array(sorted({seed for own in scores.values() for seed in own}))
    fallen = deviations < -max(_FALL * noise, TOLERANCE)
    return {
        name: seeds[row].tolist() for name, row in zip(scores, fallen, strict=True) if row.any()
    }
