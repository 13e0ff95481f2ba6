"""The bootstrap over items: how far a score may move with the choice of a task's items.

An item is a pair of an STS task or a query of a retrieval task. Each draw takes as many items as
the task has, with replacement (Efron 1979). Two models are compared on the same draws.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64
from scipy.stats import bootstrap, rankdata

DRAWS = 10_000
FILE = "items.parquet"
"""The file beside a trial's weights that holds the scores of single items."""
_BLOCK = 1_000_000
"""Each block of draws holds this many numbers, 8 MB an array."""

_Scores = Float64[np.ndarray, "*draws"]


@dataclass(frozen=True)
class ItemScores:
    """The per-item numbers from which one model's score on one task is computed.

    Attributes:
        task: The task.
        split: The split.
        metric: `spearman`, or a metric of retrieval.
        values: For STS the cosine of each pair; for retrieval the metric of each query, 0 to 1.
        gold: The annotators' similarity of each pair; None for queries.
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
    return _interval([items], level, draws)


def difference_interval(
    first: ItemScores, second: ItemScores, *, level: float = 0.95, draws: int = DRAWS
) -> Interval:
    """The interval of the difference first - second of two models' scores on the same items.

    Args:
        first: The scores of one model.
        second: The scores of the other model, on the same items in the same order.
        level: The probability with which the interval should cover the difference on all items of
            the task's kind.
        draws: The number of draws. Equal arguments give equal intervals, because the draws have a
            fixed seed.

    Raises:
        ValueError: The items differ in number or in gold similarity.
    """
    if first.values.shape != second.values.shape or not np.array_equal(
        _gold(first), _gold(second)
    ):
        raise ValueError(f"{first.task}: both models must be scored on the same items")
    return _interval([first, second], level, draws)


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
    # The file is made in memory: pyarrow would leave its own file open if the disk is full.
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), content)
    (folder / FILE).write_bytes(content.getvalue())


def read_items(content: bytes, task: str, split: str, metric: str) -> ItemScores | None:
    """Read the items of one score from a file `FILE`; None if the file does not hold them."""
    try:
        rows = pq.read_table(pa.BufferReader(content), schema=_SCHEMA).to_pylist()
    except (OSError, pa.ArrowException):
        # A damaged file costs only a remark, so it is ignored.
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
    """Compare two models on the tasks that both have; one row per score.

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
            found, a, b = difference_interval(one, other), *map(_points, (one, other))
            names = {"task": one.task, "split": one.split, "metric": one.metric}
            scores = {"A": a, "B": b, "A - B": found.value, "low": found.low, "high": found.high}
            rows.append({**names, **scores, "n": len(one.values)})
    return rows


def _points(items: ItemScores) -> float:
    return 100 * float(_scores(items.values, _centered_ranks(_gold(items))))


def _gold(items: ItemScores) -> Float64[np.ndarray, " items"]:
    return np.empty(0) if items.gold is None else items.gold


def _interval(models: Sequence[ItemScores], level: float, draws: int) -> Interval:
    """The percentile interval of one model's score, or of the first model's minus the second's."""
    gold = _gold(models[0])
    items = (*(model.values for model in models), *([gold] if gold.size else []))

    def difference(*drawn: _Scores, axis: int = -1) -> _Scores:
        ranks = _centered_ranks(drawn[-1]) if gold.size else gold
        first, *others = (_scores(values, ranks) for values in drawn[: len(models)])
        return first - others[0] if others else first

    value = 100 * float(difference(*items))
    if len(items[0]) == 1:
        return Interval(value, value, value)
    found = bootstrap(
        items,
        difference,
        n_resamples=draws,
        batch=max(1, _BLOCK // len(items[0])),
        paired=True,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(value, 100 * float(found.low), 100 * float(found.high))


def _scores(values: _Scores, gold: _Scores) -> _Scores:
    """The score of each draw: the mean of its values, or their rank correlation with `gold`.

    `gold` holds centered ranks. A draw whose items are all equal has the correlation 0.
    """
    if not gold.size:
        means: _Scores = values.mean(axis=-1)
        return means
    ranks = _centered_ranks(values)
    squares = (ranks**2).sum(axis=-1) * (gold**2).sum(axis=-1)
    found: _Scores = (ranks * gold).sum(axis=-1) / np.sqrt(np.where(squares > 0, squares, 1.0))
    return found


def _centered_ranks(values: _Scores) -> _Scores:
    centered: _Scores = rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2
    return centered
