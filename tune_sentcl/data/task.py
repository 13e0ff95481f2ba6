"""What an encoder is scored on: pairs with a gold similarity, sentences or pairs with a class."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

StsSplit = Literal["train", "dev", "test"]
Design = Literal["nested", "folds_then_test", "dev_then_test"]


@dataclass(frozen=True)
class StsSubset:
    """The pairs of one source; pair i is `sentences1[i]`, `sentences2[i]`, `gold[i]`.

    Attributes:
        name: As in the file's name, for example `headlines`.
        sentences1: First sentences.
        sentences2: Second sentences, as many.
        gold: Similarities that people gave: 0 to 5, or 1 to 5 in SICK-R.
    """

    name: str
    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    gold: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.gold)


@dataclass(frozen=True)
class StsTask:
    """One task on one split.

    Attributes:
        name: STS12 to STS16, STS-B or SICK-R.
        split: STS12 to STS16 have a test split only.
        subsets: One for STS-B and SICK-R, several for the others.
        data: Whether it is a toy set, or read from under the data root.
        suite: `sts`, or `own` where the pairs are the user's.
        version: As a `Score` has it.
    """

    name: str
    split: StsSplit
    subsets: tuple[StsSubset, ...]
    data: Literal["toy", "root"] = "root"
    suite: Literal["sts", "own"] = "sts"
    version: str | None = None

    def __len__(self) -> int:
        return sum(len(subset) for subset in self.subsets)


def sts_fingerprint(tasks: Iterable[StsTask]) -> str:
    """Hash what a score on these tasks depends on: names, pairs and gold, in order.

    Returns:
        16 hexadecimal digits.
    """

    def rows() -> Iterator[tuple[str, ...]]:
        for task in tasks:
            for subset in task.subsets:
                yield task.name, task.split, subset.name, str(len(subset))
                pairs = zip(subset.sentences1, subset.sentences2, subset.gold, strict=True)
                yield from ((left, right, gold.hex()) for left, right, gold in pairs)

    return fingerprint_of(rows())


def fingerprint_of(rows: Iterable[Iterable[str]]) -> str:
    """Hash rows of texts, in order.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=8)
    for field in chain.from_iterable(rows):
        # Lengths keep fields apart whatever they contain.
        data = field.encode()
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()


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
        data: Whether it is a toy set, or read from under the data root.
    """

    name: str
    train: ClassifiedRows
    dev: ClassifiedRows | None = None
    test: ClassifiedRows | None = None
    data: Literal["toy", "root"] = "root"

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
