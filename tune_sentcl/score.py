"""A `Score`: one measured number, with the attributes that tell it from other scores."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

Split = Literal["train", "dev", "test"]
Aggregation = Literal["all", "mean", "wmean"]
Data = Literal["toy", "root"]


class Measurement(NamedTuple):
    """The unit of measuring; one measurement gives all scores that differ in subset or metric.

    It also gives all aggregations. `metric` is set only for retrieval, where each metric is a
    measurement of its own, because users choose the cut-offs.
    """

    data: Data
    task: str
    split: Split
    protocol: str
    classifier_seed: int | None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """One score of an encoder, or the reason why it has no value.

    Attributes:
        suite: The set of tasks: `sts`, `transfer`; `own` and `mteb` for custom tasks; `cost`.
        task: The papers' name: `STS12`, `STS-B`, `SICK-R`, `MR`; or the name of a custom task.
        split: `train`, `dev` or `test`; means over folds are `test`.
        metric: Lower case: `spearman`, `pearson`, `accuracy`, `f1`, `macro_f1`, `ndcg@10`.
        protocol: How it was measured: `cosine`, `relatedness`, a transfer protocol's name,
            `retrieval`, `mteb`, `plugin` or `cost`.
        data: `toy` for generated sets, `root` for files under the data root.
        value: The score times 100, as papers print it, or a cost in its unit; None if it could not
            be measured.
        n: The number of rows scored; 0 if it is not known.
        subset: A part of the task; None for the whole task.
        aggregation: How subsets were combined: `all` joins their pairs, `mean` averages their
            scores, `wmean` weights them by size; None for a subset or a task without subsets.
        classifier_seed: The seed of a randomly initialized classifier; None for other protocols.
        reason: Why there is no value; None if there is one.
        version: Identifies scored data that names do not identify: for a custom task the
            fingerprint of its content or its plugin, for an MTEB task its revision and MTEB's
            version. None for other tasks.
    """

    suite: str
    task: str
    split: Split
    metric: str
    protocol: str
    data: Data
    value: float | None
    n: int
    _: KW_ONLY
    subset: str | None = None
    aggregation: Aggregation | None = None
    classifier_seed: int | None = None
    reason: str | None = None
    version: str | None = None

    @property
    def measurement(self) -> Measurement:
        """The measurement that gives this score."""
        alone = self.metric if self.protocol.partition("@")[0] == "retrieval" else None
        return Measurement(
            self.data, self.task, self.split, self.protocol, self.classifier_seed, alone
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """The identity of the score: two scores with equal keys measure the same."""
        return (
            self.suite,
            *self.measurement,
            self.metric,
            self.subset,
            self.aggregation,
        )


def merged(old: Iterable[Score], new: Iterable[Score]) -> list[Score]:
    """Merge new scores into old scores by key; a failure never replaces a value.

    For each key, keep the newest value, or the newest failure if there is no value. Keys stay in
    the order of their first occurrence.
    """
    kept: dict[tuple[Any, ...], Score] = {}
    for score in (*old, *new):
        before = kept.get(score.key)
        if before is None or before.value is None or score.value is not None:
            kept[score.key] = score
    return list(kept.values())
