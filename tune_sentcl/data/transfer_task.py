"""Sentences or pairs with a class each, as the transfer tasks hold them."""

from dataclasses import dataclass
from typing import Literal

Design = Literal["nested", "folds_then_test", "dev_then_test"]


@dataclass(frozen=True)
class ClassifiedRows:
    """Row i is `first[i]`, for pairs also `second[i]`, and the class `labels[i]`.

    Attributes:
        first: The sentences, or the first ones of pairs.
        second: The second sentences of pairs; None where a row is one sentence.
        labels: Classes, numbered from 0.
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TransferTask:
    """One task with the splits it comes with; these decide how it is scored.

    Attributes:
        name: MR, CR, SUBJ, MPQA, SST2, SST5, TREC, MRPC or SICK-E.
        train: Rows to learn from; for a task without splits all rows.
        dev: Rows that choose the regularization, or None.
        test: Rows that are scored, or None where folds take their place.
    """

    name: str
    train: ClassifiedRows
    dev: ClassifiedRows | None = None
    test: ClassifiedRows | None = None

    @property
    def design(self) -> Design:
        """SentEval's design for such splits."""
        if self.test is None:
            return "nested"
        return "folds_then_test" if self.dev is None else "dev_then_test"

    @property
    def parts(self) -> tuple[ClassifiedRows, ...]:
        """The splits that there are."""
        return tuple(part for part in (self.train, self.dev, self.test) if part is not None)
