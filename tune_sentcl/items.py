"""How far a score may move with the choice of a task's items: the bootstrap over items.

An item is a pair of an STS task or a query of a retrieval task. A draw takes as many items as the
task has, with replacement (Efron 1979). Two models are compared on the same draws.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64, Int64

DRAWS = 10_000
FILE = "items.parquet"
"""The file of the scores of single items beside a trial's weights."""
_BLOCK = 4_000_000
"""Numbers of a block of draws; at 32 MB each, ten arrays of this size exist at a time."""

Draws = Float64[np.ndarray, " draws"]


@dataclass(frozen=True)
class ItemScores:
    """The numbers from which one model's score on one task is computed.

    Attributes:
        task: The task.
        split: The split.
        metric: `spearman`, or a metric of retrieval.
        values: Of each pair the cosine, of each query the metric, 0 to 1.
        gold: Of each pair the similarity given by annotators; None for queries.
    """

    task: str
    split: Literal["train", "dev", "test"]
    metric: str
    values: Float64[np.ndarray, " items"]
    gold: Float64[np.ndarray, " items"] | None = None


@dataclass(frozen=True)
class Interval:
    """A number and its percentile interval, in points (times 100)."""

    value: float
    low: float
    high: float


def score_interval(items: ItemScores, *, level: float = 0.95, draws: int = DRAWS) -> Interval:
    """The interval of one model's score over the items of a task."""
    ((value, found),) = _resampled([items], draws)
    return _interval(value, found, level)


def difference_interval(
    first: ItemScores, second: ItemScores, *, level: float = 0.95, draws: int = DRAWS
) -> Interval:
    """The interval of the difference first - second of two models' scores on the same items.

    Args:
        first: The scores of one model.
        second: The scores of the other model, on the same items in the same order.
        level: The probability that the interval is to cover the difference on all such items.
        draws: The number of draws. Equal arguments give equal intervals, because the draws have a
            fixed seed.

    Raises:
        ValueError: The items differ in number or in gold similarity.
    """
    if first.values.shape != second.values.shape or not np.array_equal(
        _gold(first), _gold(second)
    ):
        raise ValueError(f"{first.task}: both models must be scored on the same items")
    (one, of_one), (other, of_other) = _resampled([first, second], draws)
    return _interval(one - other, of_one - of_other, level)


def write_items(items: Sequence[ItemScores], folder: Path) -> None:
    """Write the scores of single items into a folder of weights: one row per task and metric."""
    rows = [
        {
            "task": one.task,
            "split": one.split,
            "metric": one.metric,
            "values": one.values.tolist(),
            "gold": None if one.gold is None else one.gold.tolist(),
        }
        for one in items
    ]
    content = io.BytesIO()  # on a full disk pyarrow would leave its file open
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), content)
    (folder / FILE).write_bytes(content.getvalue())


def read_items(content: bytes, task: str, split: str, metric: str) -> ItemScores | None:
    """The scores of single items of one score, from the file `FILE`; None if it has none."""
    try:
        rows = pq.read_table(pa.BufferReader(content), schema=_SCHEMA).to_pylist()
    except (OSError, pa.ArrowException):  # a damaged file only costs a remark
        return None
    for row in rows:
        if row["values"] and (row["task"], row["split"], row["metric"]) == (task, split, metric):
            gold = None if row["gold"] is None else np.array(row["gold"], np.float64)
            return ItemScores(
                task, row["split"], metric, np.array(row["values"], np.float64), gold
            )
    return None


_NUMBERS = pa.list_(pa.float64())
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("task", "split", "metric")),
        *((name, _NUMBERS) for name in ("values", "gold")),
    ]
)


def comparison(
    first: Sequence[ItemScores], second: Sequence[ItemScores]
) -> list[dict[str, str | int | float]]:
    """Scores of two models on the same tasks with their differences, one row a score.

    Args:
        first: The items of model A.
        second: The items of model B; tasks that A lacks are left out.

    Returns:
        Rows with task, split, metric, A, B, A - B with its 95 % interval, and the number of items.
    """
    others = {(one.task, one.split, one.metric): one for one in second}
    rows: list[dict[str, str | int | float]] = []
    for one in first:
        other = others.get((one.task, one.split, one.metric))
        if other is not None:
            found, a, b = difference_interval(one, other), 100 * _score(one), 100 * _score(other)
            names = {"task": one.task, "split": one.split, "metric": one.metric}
            scores = {"A": a, "B": b, "A - B": found.value, "low": found.low, "high": found.high}
            rows.append({**names, **scores, "n": len(one.values)})
    return rows


def _score(items: ItemScores) -> float:
    return float(_scores(items, np.ones((1, len(items.values)), np.int64))[0])


def _gold(items: ItemScores) -> Float64[np.ndarray, " items"]:
    return np.empty(0) if items.gold is None else items.gold


def _interval(value: float, draws: Draws, level: float) -> Interval:
    # A draw of few items may have no correlation, because all of them are equal.
    low, high = np.nanquantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(100 * value, 100 * float(low), 100 * float(high))


def _resampled(models: Sequence[ItemScores], draws: int) -> list[tuple[float, Draws]]:
    """The score of each model, and its scores on the same draws."""
    count = len(models[0].values)
    parts = [[_scores(items, counts) for items in models] for counts in _draws(count, draws)]
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return list(zip(map(_score, models), columns, strict=True))


def _draws(count: int, draws: int) -> Iterator[Int64[np.ndarray, "draws items"]]:
    """How often each item is in each draw, in blocks."""
    generator = np.random.default_rng(0)
    size = max(1, _BLOCK // count)
    for start in range(0, draws, size):
        rows = min(size, draws - start)
        drawn = generator.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)


def _scores(items: ItemScores, counts: Int64[np.ndarray, "draws items"]) -> Draws:
    if items.gold is None:
        means: Draws = counts @ items.values / counts.shape[1]
        return means
    # Ranks are centered: with mean ranks for ties, their mean is (n + 1) / 2 in every draw.
    left, right = (_centered_ranks(side, counts) for side in (items.values, items.gold))
    covariance = (counts * left * right).sum(axis=1)
    squares = (counts * left**2).sum(axis=1) * (counts * right**2).sum(axis=1)
    found: Draws = np.divide(
        covariance, np.sqrt(squares), out=np.full(len(counts), np.nan), where=squares > 0
    )
    return found


def _centered_ranks(
    values: Float64[np.ndarray, " items"], counts: Int64[np.ndarray, "draws items"]
) -> Float64[np.ndarray, "draws items"]:
    """The rank of each item among the items of each draw, the mean for ties, less their mean."""
    _, inverse = np.unique(values, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.flatnonzero(np.diff(inverse[order], prepend=-1))
    tied = np.add.reduceat(counts[:, order], starts, axis=1)
    ranks = np.cumsum(tied, axis=1) - (tied - 1) / 2
    centered: Float64[np.ndarray, "draws items"] = ranks[:, inverse] - (counts.shape[1] + 1) / 2
    return centered
