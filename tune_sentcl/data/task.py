"""Evaluation tasks: sentence pairs with a gold similarity, sentences or pairs with a class."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal

StsSplit = Literal["train", "dev", "test"]
Prompt = Literal["text", "query", "document"]
"""The kind of a text: a query or a document of retrieval, or another text."""
Design = Literal["nested", "folds_then_test", "dev_then_test"]


@dataclass(frozen=True)
class StsSubset:
    """The pairs of one part of a task; pair i is `sentences1[i]`, `sentences2[i]`, `gold[i]`.

    Attributes:
        name: The name in the file's name, for example `headlines`.
        sentences1: First sentences.
        sentences2: Second sentences.
        gold: Similarities given by annotators: 0 to 5, or 1 to 5 in SICK-R.
    """

    name: str
    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    gold: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.gold)


class ScoredTask:
    """A task of `evaluation.own`; each kind overrides the methods that apply to it."""

    def texts(self, prompt: Prompt = "text") -> Iterator[str]:
        """The texts to embed with a prompt, as far as they are known here."""
        del prompt
        yield from ()

    def remarks(self) -> Iterator[str]:
        """Remarks on its scores, for the user."""
        yield from ()


@dataclass(frozen=True)
class StsTask(ScoredTask):
    """One STS task on one split.

    Attributes:
        name: STS12 to STS16, STS-B or SICK-R.
        split: STS12 to STS16 have only a test split.
        subsets: One subset for STS-B and SICK-R, several for other tasks.
        data: Whether the set is generated (`toy`) or read from the data root.
        suite: `sts`, or `own` for the user's own pairs.
        version: See `Score`.
    """

    name: str
    split: StsSplit
    subsets: tuple[StsSubset, ...]
    data: Literal["toy", "root"] = "root"
    suite: Literal["sts", "own"] = "sts"
    version: str | None = None

    protocol: ClassVar = "cosine"

    def __len__(self) -> int:
        return sum(len(subset) for subset in self.subsets)

    @property
    def offers(self) -> tuple[tuple[str, StsSplit], ...]:
        """The metrics and splits that the task yields, in order."""
        return ("spearman", self.split), ("pearson", self.split)

    @property
    def num_rows(self) -> int:
        """The number of pairs to score."""
        return len(self)

    @property
    def size(self) -> str:
        """Its number of pairs, as text."""
        return f"{len(self):,} pairs"

    def texts(self, prompt: Prompt = "text") -> Iterator[str]:
        """The sentences to embed with a prompt."""
        for subset in self.subsets if prompt == "text" else ():
            yield from subset.sentences1
            yield from subset.sentences2


def sts_fingerprint(tasks: Iterable[StsTask]) -> str:
    """Hash everything that scores on these tasks depend on: names, pairs and gold, in order."""

    def rows() -> Iterator[tuple[str, ...]]:
        for task in tasks:
            for subset in task.subsets:
                yield task.name, task.split, subset.name, str(len(subset))
                pairs = zip(subset.sentences1, subset.sentences2, subset.gold, strict=True)
                yield from ((left, right, gold.hex()) for left, right, gold in pairs)

    return fingerprint_of(rows())


def fingerprint_of(rows: Iterable[Iterable[str]]) -> str:
    """Hash rows of texts, in order, to 16 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=8)
    for field in chain.from_iterable(rows):
        # Each field is preceded by its length, because a field may contain any separator.
        data = field.encode()
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()


@dataclass(frozen=True)
class ClassifiedRows:
    """Rows with a class each: row i is `first[i]`, for pairs also `second[i]`, and `labels[i]`.

    Attributes:
        first: The sentences, or the first sentences of pairs.
        second: The second sentences of pairs; None for single sentences.
        labels: Classes, numbered from 0.
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TransferTask:
    """One task with its splits, which determine how it is scored.

    Attributes:
        name: MR, CR, SUBJ, MPQA, SST2, SST5, TREC, MRPC or SICK-E.
        train: Training rows; all rows for a task without splits.
        dev: Rows that select the regularization, or None.
        test: Rows to score; None if folds of `train` are scored instead.
        data: Whether the set is generated (`toy`) or read from the data root.
    """

    name: str
    train: ClassifiedRows
    dev: ClassifiedRows | None = None
    test: ClassifiedRows | None = None
    data: Literal["toy", "root"] = "root"

    @property
    def design(self) -> Design:
        """SentEval's evaluation design for these splits."""
        if self.test is None:
            return "nested"
        return "folds_then_test" if self.dev is None else "dev_then_test"

    @property
    def parts(self) -> tuple[ClassifiedRows, ...]:
        """The splits that exist."""
        return tuple(part for part in (self.train, self.dev, self.test) if part is not None)
