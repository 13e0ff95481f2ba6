"""Tokenized inputs one after another in flat arrays, so that a batch is one vectorised gather."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from jaxtyping import Int, Int32, Int64, UInt8


@dataclass(frozen=True, eq=False)
class Tokens:
    """Some inputs of an encoder; the arrays may be memory-mapped, and are never written to.

    Attributes:
        ids: Token numbers of all inputs, one input after another, special tokens included.
        offsets: Where each input begins in `ids`, and behind them where the last one ends.
        types: Which segment each token belongs to; None where all belong to the first.
    """

    ids: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " bounds"]
    types: UInt8[np.ndarray, " tokens"] | None = None

    @classmethod
    def of(
        cls, inputs: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> "Tokens":
        """Join lists of token numbers.

        Args:
            inputs: One list an input; a list may be empty.
            types: As long as `inputs`, list by list; None where all is of the first segment.
        """
        offsets = _offsets(np.fromiter(map(len, inputs), np.int64, len(inputs)))
        total = int(offsets[-1])
        ids = np.fromiter(chain.from_iterable(inputs), np.int32, total)
        if types is None:
            return cls(ids, offsets)
        return cls(ids, offsets, np.fromiter(chain.from_iterable(types), np.uint8, total))

    @classmethod
    def concatenate(cls, parts: Iterable["Tokens"]) -> "Tokens":
        """Put the inputs of several behind each other.

        Args:
            parts: One or more; where only some have types, the others are of the first segment.
        """
        all_ = list(parts)
        ids = np.concatenate([part.ids for part in all_])
        offsets = _offsets(np.concatenate([part.lengths for part in all_]))
        if all(part.types is None for part in all_):
            return cls(ids, offsets)
        types = [np.zeros(len(p.ids), np.uint8) if p.types is None else p.types for p in all_]
        return cls(ids, offsets, np.concatenate(types))

    def __len__(self) -> int:
        """How many inputs there are."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64[np.ndarray, " inputs"]:
        """Tokens of each input."""
        return np.diff(self.offsets)

    def lengths_of(self, rows: Int[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """Tokens of some inputs."""
        found: Int64[np.ndarray, " rows"] = self.offsets[rows + 1] - self.offsets[rows]
        return found

    def lists(self) -> list[list[int]]:
        """Each input as a list of its token numbers."""
        ends = self.offsets.tolist()
        ids = self.ids.tolist()
        return [ids[start:end] for start, end in pairwise(ends)]

    def take(self, rows: Int[np.ndarray, " rows"]) -> "Tokens":
        """Some inputs, in the order of `rows`, which may repeat."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths_of(rows)
        offsets = _offsets(lengths)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Tokens(
            self.ids[places], offsets, None if self.types is None else self.types[places]
        )


def batches_by_length(lengths: Int[np.ndarray, " inputs"], budget: int) -> Iterator[slice]:
    """Cut inputs into batches of about as many tokens each.

    Args:
        lengths: Of the inputs, falling.
        budget: How many tokens a batch may have at most, each input counted as its longest one; a
            longer input is a batch of its own.
    """
    start = 0
    while start < len(lengths):
        count = max(budget // max(int(lengths[start]), 1), 1)
        end = min(start + count, len(lengths))
        yield slice(start, end)
        start = end


def _offsets(lengths: Int[np.ndarray, " inputs"]) -> Int64[np.ndarray, " bounds"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
