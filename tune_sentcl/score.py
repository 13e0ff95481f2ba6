"""One measured number with all that tells it from its neighbors: the same for every layer."""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

Split = Literal["train", "dev", "test"]
Aggregation = Literal["all", "mean", "wmean"]
Data = Literal["toy", "root"]


class Measurement(NamedTuple):
    """What one measuring gives scores for: all subsets, metrics and aggregations of it at once.

    Metrics of retrieval count one by one, because any cut-off may be asked for: `metric` names
    them, and is None elsewhere.
    """

    data: Data
    task: str
    split: Split
    protocol: str
    classifier_seed: int | None
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """One number that an encoder was given, or why it has none.

    Attributes:
        suite: The set of tasks: `sts`, `transfer`; `own` and `mteb` for the user's choice.
        task: As papers write it: `STS12`, `STS-B`, `SICK-R`, `MR`; or the user's own name.
        split: `train`, `dev` or `test`; means over folds are `test`.
        metric: Lower case: `spearman`, `pearson`, `accuracy`, `f1`, `macro_f1`, `ndcg@10`.
        protocol: How it was measured: `cosine`, `relatedness`, a transfer protocol's name,
            `retrieval` or `mteb`.
        data: Whether the toy sets or the files under the data root were scored.
        value: Times 100, as papers print; None where it could not be had.
        n: Rows scored.
        subset: A part of the task; None for the whole.
        aggregation: How subsets were joined: `all` joins their pairs, `mean` averages their
            scores, `wmean` weights these by size; None for a subset and for a task of one.
        classifier_seed: Of a classifier that draws at random; None where there is none.
        reason: Why there is no value; None where there is one.
        version: What exactly was scored, where names do not say it: of a user's own task the
            fingerprint of its content, of one of MTEB its revision and MTEB's version.
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
        """The measuring that this score comes from."""
        alone = self.metric if self.protocol.partition("@")[0] == "retrieval" else None
        return Measurement(
            self.data, self.task, self.split, self.protocol, self.classifier_seed, alone
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What it is a score of: two scores of one key are two tries at the same number."""
        return (
            self.suite,
            *self.measurement,
            self.metric,
            self.subset,
            self.aggregation,
        )


def merged(old: Iterable[Score], new: Iterable[Score]) -> list[Score]:
    """What stands when new scores come to old ones: no number is lost to a failure.

    Scores are added or replaced one by one by their key. The newest number stays; where there is
    none, the newest failure does.

    Args:
        old: What stands.
        new: What was measured since, in that order.

    Returns:
        One score a key, in the order in which the keys came first.
    """
    kept: dict[tuple[Any, ...], Score] = {}
    for score in (*old, *new):
        before = kept.get(score.key)
        if before is None or before.value is None or score.value is not None:
            kept[score.key] = score
    return list(kept.values())
