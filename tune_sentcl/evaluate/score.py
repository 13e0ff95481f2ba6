"""One measured number, with all that tells it from its neighbors."""

from dataclasses import dataclass
from typing import Literal

Metric = Literal["spearman", "pearson", "accuracy", "f1"]
Aggregation = Literal["all", "mean", "wmean"]


@dataclass(frozen=True)
class Score:
    """One number.

    Attributes:
        suite: The set of tasks: `sts` or `transfer`.
        task: Such as `STS12` or `STS-B`.
        subset: A part of the task, or None for the whole.
        split: `train`, `dev` or `test`.
        metric: What was computed.
        aggregation: How a task's subsets became one number: `all` joins their pairs, `mean`
            averages their scores, `wmean` weights these by size; None for a subset and for a task
            of one.
        protocol: How it was measured, such as `cosine` or `logreg-10fold`.
        value: Times 100, as papers print it.
        n: How many rows it rests on.
        classifier_seed: Of a classifier that draws at random, else None.
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
    classifier_seed: int | None = None
