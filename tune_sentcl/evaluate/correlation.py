"""Cosines of sentence pairs, and Pearson and Spearman correlation, in double precision.

SentEval turns an undefined cosine or correlation into 0, or lets NaN pass. Here it is an error by
default, because a collapsed encoder must not look like a mediocre one.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.shapes import EmbeddingMatrix

Numbers = Sequence[float] | Float64[np.ndarray, " rows"]
"""One number a row."""


def paired_cosine(
    left: EmbeddingMatrix, right: EmbeddingMatrix, name: str, *, zeros: bool = False
) -> Float64[np.ndarray, " sentences"]:
    """Compare two matrices row by row.

    Args:
        left: One embedding a row.
        right: As many rows of the same width.
        name: The name of the pairs, for the message.
        zeros: Whether a cosine with the zero vector is 0, as in SentEval.

    Returns:
        Cosines in [-1, 1].

    Raises:
        NonFiniteError: A row is not finite, or is the zero vector without `zeros`.
    """
    u, v = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity by 0
        lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    if zeros:
        lengths[lengths == 0] = 1.0
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if bad.size:
        raise NonFiniteError(
            f"{name}: the cosine of pair {bad[0]} (from 0) has no value, nor those of "
            f"{bad.size - 1} other pairs: an embedding is zero or not finite"
        )
    cosines: Float64[np.ndarray, " sentences"] = (u * v).sum(axis=1) / lengths
    return cosines.clip(-1.0, 1.0)


def pearson(left: Numbers, right: Numbers, name: str) -> float:
    """Linear correlation of two or more pairs, in [-1, 1]; `name` is for the message.

    Raises:
        NonFiniteError: It has no value: too few rows, a constant side, NaN or infinity.
    """
    x, y = _checked(left, name), _checked(right, name)
    if x.size != y.size:
        raise ValueError(f"{name}: {x.size} numbers cannot be correlated with {y.size}")
    x, y = _unit(x, name), _unit(y, name)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(left: Numbers, right: Numbers, name: str) -> float:
    """Rank correlation: `pearson` of the ranks, with the mean rank for ties."""
    return pearson(_ranks(_checked(left, name)), _ranks(_checked(right, name)), name)


def _ranks(array: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
    # Not scipy.stats, whose import costs every worker half a second.
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Float64[np.ndarray, " rows"] = (last - (counts - 1) / 2)[inverse]
    return ranks


def _checked(numbers: Numbers, name: str) -> Float64[np.ndarray, " rows"]:
    array = np.asarray(numbers, dtype=np.float64)
    if array.size < 2:
        raise NonFiniteError(f"{name}: a correlation needs 2 rows or more, not {array.size}")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise NonFiniteError(f"{name}: row {row} (from 0) is {array[row]}, not a finite number")
    return array


def _unit(array: Float64[np.ndarray, " rows"], name: str) -> Float64[np.ndarray, " rows"]:
    centered = array - array.mean()
    length = float(np.linalg.norm(centered))
    # The mean of equal numbers may differ from them by rounding, which is not variance.
    if np.ptp(array) == 0 or length <= 1e-13 * float(np.linalg.norm(array)):
        raise NonFiniteError(f"{name}: all {array.size} values are {array[0]}, so nothing varies")
    unit: Float64[np.ndarray, " rows"] = centered / length
    return unit
