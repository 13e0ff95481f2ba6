"""Scores of configurations with seeds as blocks: differences, their noise, and collapsed seeds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from jaxtyping import Bool, Float64
from scipy.special import fdtrc, stdtr

from tune_sentcl.store.union import TOLERANCE

Scores = Mapping[str, Mapping[int, float]]
"""The scores of each configuration, by seed."""

Table = Float64[np.ndarray, "k n"]
"""A row a configuration, a column a seed; NaN for a missing score."""

_FALL = 6.0
"""A collapsed seed lies at least this many standard deviations of the noise below the others."""
_SURE = 0.01  # the probability of naming a collapsed seed where none collapsed, for normal noise
_UNEVEN = 0.04  # the probability of setting apart a configuration that is like the others
_NORMAL_MAD = 1.4826  # the sd of normal values, in median absolute deviations


@dataclass(frozen=True)
class Contrast:
    """The difference of two configurations, first minus second.

    Attributes:
        difference: The estimate, in points.
        error: Its standard error.
        df: The degrees of freedom of the error.
        n: The number of seeds that a complete comparison of the same precision has.
        pooled: Whether the error is that of all configurations together. If not, it is that of
            the differences of this pair alone.
    """

    difference: float
    error: float
    df: int
    n: float
    pooled: bool


class SeedFit:
    """Least squares for `score = configuration + seed + noise`: a randomized block design.

    Attributes:
        levels: Each configuration's effect; only differences have a meaning.
        residuals: The noise; NaN for a missing score.
        squares: The sum of squared residuals.
        df: Their degrees of freedom: (k - 1)(n - 1) without missing scores.
    """

    def __init__(self, table: Table) -> None:
        """Fit a table whose rows each hold a score."""
        there = ~np.isnan(table)
        self._counts = there.sum(axis=1)
        values = np.where(there, table, 0.0)
        self._shares = there / self._counts[:, None]
        # The configurations are eliminated, so that only n equations are solved for n seeds.
        self._matrix = np.diag(there.sum(axis=0).astype(float)) - there.T @ self._shares
        if there.all():  # known, and `pinv` takes most of the time
            self._inverse = (np.eye(len(self._matrix)) - 1 / len(self._matrix)) / len(table)
        else:
            self._inverse = np.linalg.pinv(self._matrix, rcond=1e-10, hermitian=True)
        means = values.sum(axis=1) / self._counts
        seeds = self._inverse @ (values - means[:, None] * there).sum(axis=0)
        self.levels = means - self._shares @ seeds
        self.residuals = table - self.levels[:, None] - seeds[None, :]
        self.squares = float(np.nansum(self.residuals**2))
        rank = round(float(np.trace(self._matrix @ self._inverse)))
        self.df = int(there.sum()) - len(table) - rank

    @property
    def sd(self) -> float:
        """The standard deviation of the noise; NaN without degrees of freedom."""
        return math.sqrt(self.squares / self.df) if self.df > 0 else math.nan

    def variance(self, row: int, other: int) -> float:
        """The variance of the difference of two levels, in variances of the noise.

        It is NaN if no chain of common seeds joins the two rows.
        """
        weights = self._shares[row] - self._shares[other]
        solved = self._inverse @ weights
        if not np.allclose(self._matrix @ solved, weights, atol=1e-8):
            return math.nan
        return float(1 / self._counts[row] + 1 / self._counts[other] + weights @ solved)


class SeedBlocks:
    """The scores of several configurations whose noise is estimated together.

    A configuration with a collapsed seed, or with a greater spread than the others, is compared by
    the deviation of its own differences. With a collapse or by far the greatest spread it leaves
    the common estimate. Others stay in it, because without the widest of equal ones it is too low.

    Attributes:
        names: The configurations.
        collapsed: By configuration, its collapsed seeds.
        pool: The configurations that estimate the common noise.
        apart: The configurations with a collapsed seed, or with a spread greater than the others'.
        sd: The standard deviation of the noise of one score; NaN if it cannot be estimated.
        df: Its degrees of freedom.
    """

    def __init__(self, scores: Scores) -> None:
        """Estimate the noise.

        Args:
            scores: Of configurations that draw; those without a score are left out.
        """
        there = {name: found for name, found in scores.items() if found}
        self.names = list(there)
        seeds = sorted({seed for found in there.values() for seed in found})
        rows = [[found.get(seed, math.nan) for seed in seeds] for found in there.values()]
        self.table = np.array(rows).reshape(len(rows), len(seeds))
        fallen = _collapsed(self.table)
        self.collapsed = {
            name: [seeds[column] for column in np.flatnonzero(row)]
            for name, row in zip(self.names, fallen, strict=True)
            if row.any()
        }
        pool, self._fit = _pool(self.table, np.flatnonzero(~fallen.any(axis=1)).tolist())
        self.pool = [self.names[row] for row in pool]
        uneven = _uneven(self.table, pool, self._fit)
        self._places = {row: place for place, row in enumerate(pool) if row not in uneven}
        self.apart = frozenset(self.names) - {self.names[row] for row in self._places}
        self.sd = self._fit.sd if self._fit else math.nan
        self.df = self._fit.df if self._fit else 0

    def contrast(self, first: str, second: str) -> Contrast | None:
        """Compare two configurations; None if nothing estimates the noise of their difference.

        Args:
            first: A configuration.
            second: Another one.
        """
        rows = [self.names.index(name) for name in (first, second)]
        places = [self._places.get(row) for row in rows]
        if self._fit is None or None in places or math.isnan(self.sd):
            return self._paired(*rows)
        row, other = (place for place in places if place is not None)
        variance = self._fit.variance(row, other)
        if math.isnan(variance):
            return None
        difference = float(self._fit.levels[row] - self._fit.levels[other])
        return Contrast(difference, self.sd * math.sqrt(variance), self.df, 2 / variance, True)

    def _paired(self, row: int, other: int) -> Contrast | None:
        """The contrast by the differences of the common seeds, whatever the variances are."""
        found = self.table[row] - self.table[other]
        return paired(found[~np.isnan(found)])


def paired(differences: Float64[np.ndarray, " n"]) -> Contrast | None:
    """The contrast of paired scores, by Student's t; None for fewer than two."""
    n = len(differences)
    if n < 2:
        return None
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    return Contrast(float(differences.mean()), error, n - 1, float(n), pooled=False)


def _collapsed(table: Table) -> Bool[np.ndarray, "k n"]:
    """The seeds that fell far below what their configuration and seed lead one to expect.

    Medians find the candidates, because collapsed seeds hide each other from means. The others
    then predict each candidate (Hawkins, Identification of Outliers, 1980, chapter 8).
    """
    none = np.zeros(table.shape, bool)
    if min(table.shape) < 2 or (~np.isnan(table)).sum(axis=1).min() < 1:
        return none
    rest = table - _median(table, 0) if len(table) > 2 else table
    rest = rest - _median(rest, 1)[:, None]
    with np.errstate(invalid="ignore"):
        if len(table) > 2:
            seeds = _median(rest, 0)
        else:  # of two deviations, the smaller one is that of the seed
            smaller = np.where(np.isnan(rest), np.inf, np.abs(rest)).argmin(axis=0)
            seeds = rest[smaller, np.arange(rest.shape[1])]
        rest = rest - seeds
        sizes = np.abs(rest[~np.isnan(rest) & (rest != 0)])
        noise = _NORMAL_MAD * float(np.median(sizes)) if len(sizes) else 0.0
        candidates = rest < -max(_FALL / 2 * noise, TOLERANCE)
    others = np.where(candidates, math.nan, table)
    there = ~np.isnan(others)
    if not candidates.any() or not there.any(axis=1).all():
        return none
    fit = SeedFit(others)
    if fit.df < 1:
        return none
    seeds_of = np.nanmean(np.where(there, others - fit.levels[:, None] - fit.residuals, np.nan), 0)
    around = 1 + 1 / there.sum(axis=1)[:, None] + 1 / np.maximum(there.sum(axis=0), 1)
    scale = max(fit.sd, TOLERANCE) * np.sqrt(around)
    t = np.where(candidates, (table - fit.levels[:, None] - seeds_of) / scale, 0.0)
    found: Bool[np.ndarray, "k n"] = (t < -_FALL) & (stdtr(fit.df, t) * candidates.size < _SURE)
    return found


def _median(table: Table, axis: int) -> Float64[np.ndarray, " rest"]:
    # numpy's median that leaves out NaN is ten times slower.
    median = np.nanmedian if np.isnan(table).any() else np.median
    found: Float64[np.ndarray, " rest"] = median(table, axis=axis)
    return found


def _pool(table: Table, rows: list[int]) -> tuple[list[int], SeedFit | None]:
    """Take configurations of by far the greatest spread out of some rows; the rest and its fit."""
    while len(rows) > 1:
        fit = SeedFit(table[rows])
        widest, p = next(_spreads(table, rows, fit), (0, 1.0))
        if p * len(rows) >= _UNEVEN:
            return rows, fit
        rows = [row for row in rows if row != widest]
    return rows, None


def _uneven(table: Table, pool: list[int], fit: SeedFit | None) -> set[int]:
    """The rows of a pool whose spread is greater than that of the others."""
    if fit is None:
        return set()
    return {row for row, _ in takewhile(lambda one: one[1] < _UNEVEN, _spreads(table, pool, fit))}


def _spreads(table: Table, rows: list[int], fit: SeedFit) -> Iterator[tuple[int, float]]:
    """The rows, the widest first, each with the p-value of the F test against all others."""
    counts = (~np.isnan(table[rows])).sum(axis=1)
    spread = np.nansum(fit.residuals**2, axis=1) / np.maximum(counts - 1, 1)
    for place in np.argsort(-spread, kind="stable").tolist() if len(rows) > 2 else []:
        others = SeedFit(np.delete(table[rows], place, axis=0))
        df = fit.df - others.df
        if df < 1 or others.df < 1 or others.squares <= 0:
            return
        ratio = (fit.squares - others.squares) / df / (others.squares / others.df)
        yield rows[place], float(fdtrc(df, others.df, ratio))
