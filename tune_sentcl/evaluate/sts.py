"""Semantic textual similarity: correlation of cosines with human scores.

Papers aggregate a task's subsets in three ways and seldom say which. SCL weights them by size,
SimCSE and ConIsI join their pairs, others take the plain mean. Each aggregation is a score.

SentEval turns an undefined cosine or correlation into 0, or lets NaN pass. Here both are errors by
default, because a collapsed encoder must not get a mediocre score.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from tune_sentcl.data.task import StsSubset, StsTask
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.encode import FEW_ZEROS, SentenceTable
from tune_sentcl.items import ItemScores
from tune_sentcl.score import Aggregation, Score
from tune_sentcl.shapes import EmbeddingMatrix


def few_zeros(
    sentences: SentenceTable, tasks: Sequence[StsTask], among: Sequence[StsTask] | None = None
) -> int:
    """Count the sentences with the zero vector; 0 if more than one in a thousand has it.

    CLSR's ReLU on the embedding can turn a sentence into the zero vector. SentEval counts the
    cosines of such a sentence as 0. This package does the same for up to one sentence in a
    thousand.

    Args:
        sentences: Holds the tasks' sentences.
        tasks: The tasks.
        among: The tasks whose sentences are the thousand, so that evaluation points and the final
            evaluation use one limit; None: `tasks`.
    """
    zeros = sentences.zeros(set(_sentences(tasks)))
    return zeros if zeros <= FEW_ZEROS * len(set(_sentences(among or tasks))) else 0


def _sentences(tasks: Sequence[StsTask]) -> Iterator[str]:
    for task in tasks:
        for subset in task.subsets:
            yield from subset.sentences1
            yield from subset.sentences2


def score_task(
    sentences: SentenceTable, task: StsTask, *, zeros: bool = False
) -> tuple[list[Score], list[ItemScores]]:
    """Score one task by cosine, without training; `zeros` is that of `paired_cosine`.

    Returns:
        The scores, and the cosines of all pairs.
    """
    cosines = [_cosines(sentences, task, subset, zeros) for subset in task.subsets]
    sizes = [len(subset.gold) for subset in task.subsets]
    gold = [score for subset in task.subsets for score in subset.gold]
    scores = []
    for metric, correlate in _METRICS.items():
        values = [
            correlate(near, subset.gold, f"{metric} of {task.name} {subset.name}")
            for near, subset in zip(cosines, task.subsets, strict=True)
        ]
        if len(values) == 1:
            scores.append(_score(task, None, metric, None, values[0], sizes[0]))
            continue
        for subset, value, size in zip(task.subsets, values, sizes, strict=True):
            scores.append(_score(task, subset.name, metric, None, value, size))
        joined = correlate(np.concatenate(cosines), gold, f"{metric} of {task.name}")
        weighted = float(np.average(values, weights=sizes))
        aggregated: dict[Aggregation, float] = {
            "all": joined,
            "mean": float(np.mean(values)),
            "wmean": weighted,
        }
        for way, value in aggregated.items():
            scores.append(_score(task, None, metric, way, value, sum(sizes)))
    pairs = (np.concatenate(cosines), np.array(gold, np.float64))
    return scores, [ItemScores(task.name, task.split, "spearman", *pairs)]


def _cosines(
    sentences: SentenceTable, task: StsTask, subset: StsSubset, zeros: bool
) -> Float64[np.ndarray, " pairs"]:
    name = f"{task.name} {subset.name}"
    left, right = sentences.rows(subset.sentences1, name), sentences.rows(subset.sentences2, name)
    return paired_cosine(left, right, name, zeros=zeros)


def _score(
    task: StsTask,
    subset: str | None,
    metric: str,
    aggregation: Aggregation | None,
    value: float,
    n: int,
) -> Score:
    return Score(
        task.suite,
        task.name,
        task.split,
        metric,
        "cosine",
        task.data,
        100 * value,
        n,
        subset=subset,
        aggregation=aggregation,
        version=task.version,
    )


Numbers = Sequence[float] | Float64[np.ndarray, " rows"]
"""One number per row."""


def paired_cosine(
    left: EmbeddingMatrix, right: EmbeddingMatrix, name: str, *, zeros: bool = False
) -> Float64[np.ndarray, " sentences"]:
    """Compare two matrices row by row.

    Args:
        left: One embedding per row.
        right: As many rows of the same width.
        name: The name of the pairs, for errors.
        zeros: Whether a cosine with the zero vector is 0, as in SentEval.

    Returns:
        Cosines in [-1, 1].

    Raises:
        NonFiniteError: A row is not finite, or is the zero vector without `zeros`.
    """
    u, v = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        # Infinity times 0 is NaN, about which numpy would warn.
        lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    if zeros:
        lengths[lengths == 0] = 1.0
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if bad.size:
        raise NonFiniteError(
            f"{name}: {bad.size} of {lengths.size} cosines have no value, because an embedding is "
            f"zero or not finite; the first is that of pair {bad[0]} (from 0)"
        )
    cosines: Float64[np.ndarray, " sentences"] = (u * v).sum(axis=1) / lengths
    return cosines.clip(-1.0, 1.0)


def pearson(left: Numbers, right: Numbers, name: str) -> float:
    """Linear correlation of two or more pairs, in [-1, 1]; `name` appears in errors.

    Raises:
        NonFiniteError: There are too few rows, a side is constant, or a number is not finite.
        ValueError: The sides differ in length.
    """
    x, y = _checked(left, name), _checked(right, name)
    if x.size != y.size:
        raise ValueError(f"{name}: {x.size} numbers cannot be correlated with {y.size}")
    x, y = _unit(x, name), _unit(y, name)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(left: Numbers, right: Numbers, name: str) -> float:
    """Rank correlation: `pearson` of the ranks, with the mean rank for ties."""
    return pearson(_ranks(_checked(left, name)), _ranks(_checked(right, name)), name)


_METRICS: dict[str, Callable[[Numbers, Numbers, str], float]] = {
    "spearman": spearman,
    "pearson": pearson,
}


def _ranks(array: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
    # This function does without scipy.stats, whose import takes half a second in every worker.
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
    # Rounding can move the mean of equal numbers away from them; the remaining differences are no
    # variance.
    if np.ptp(array) == 0 or length <= 1e-13 * float(np.linalg.norm(array)):
        raise NonFiniteError(f"{name}: all {array.size} values are {array[0]}, so nothing varies")
    unit: Float64[np.ndarray, " rows"] = centered / length
    return unit
