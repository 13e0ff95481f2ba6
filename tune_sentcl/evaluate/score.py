"""One measured number, with all that tells it from its neighbors."""

from dataclasses import dataclass
from typing import Literal

Metric = Literal["spearman", "pearson"]
Aggregation = Literal["all", "mean", "wmean"]


@dataclass(frozen=True)
class Score:
    """One number.

    Attributes:
        suite: The set of tasks: `sts`.
        task: Such as `STS12` or `STS-B`.
        subset: A part of the task, or None for the whole.
        split: `train`, `dev` or `test`.
        metric: What was computed.
        aggregation: How a task's subsets became one number: `all` joins their pairs, `mean`
            averages their scores, `wmean` weights these by size; None for a subset and for a task
            of one.
        protocol: How sentences were compared: `cosine`.
        value: Times 100, as papers print it.
        n: How many pairs it rests on.
    """

    suite: str
    task: str
    subset: str | None
    split: Literal["train", "dev", "test"]
    metric: Metric
    aggregation: Aggregation | None
    protocol: str
    value: float
    n: int
