"""Sentence pairs with a gold similarity, as the STS tasks hold them."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

StsSplit = Literal["train", "dev", "test"]


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
    """

    name: str
    split: StsSplit
    subsets: tuple[StsSubset, ...]

    def __len__(self) -> int:
        return sum(len(subset) for subset in self.subsets)


def sts_fingerprint(tasks: Iterable[StsTask]) -> str:
    """Hash what a score on these tasks depends on: names, pairs and gold, in order.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=8)
    for task in tasks:
        for subset in task.subsets:
            head = (task.name, task.split, subset.name, str(len(subset)))
            pairs = zip(subset.sentences1, subset.sentences2, subset.gold, strict=True)
            rows = ((left, right, gold.hex()) for left, right, gold in pairs)
            for fields in (head, *rows):
                for field in fields:
                    # Lengths keep fields apart whatever they contain.
                    data = field.encode()
                    digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()
