"""Tokenized inputs in flat arrays, so that taking a batch is one vectorized gather."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from jaxtyping import Int, Int32, Int64, UInt8

from tune_sentcl.errors import CheckpointError, Fault


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokenized inputs of an encoder; the arrays must not be changed.

    Attributes:
        ids: Token numbers of all inputs, one input after another, special tokens included.
        offsets: The start of each input in `ids`, then the end of the last input.
        types: The segment of each token; None if all tokens are in segment 0.
    """

    ids: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " bounds"]
    types: UInt8[np.ndarray, " tokens"] | None = None

    @classmethod
    def of(
        cls, inputs: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> "Tokens":
        """Join lists of token numbers, some maybe empty; without types all are in segment 0."""
        offsets = _offsets(np.fromiter(map(len, inputs), np.int64, len(inputs)))
        total = int(offsets[-1])
        ids = np.fromiter(chain.from_iterable(inputs), np.int32, total)
        if types is None:
            return cls(ids, offsets)
        return cls(ids, offsets, np.fromiter(chain.from_iterable(types), np.uint8, total))

    @classmethod
    def concatenate(cls, parts: Iterable["Tokens"]) -> "Tokens":
        """Join the inputs of at least one part; a part without types is in segment 0."""
        all_ = list(parts)
        ids = np.concatenate([part.ids for part in all_])
        offsets = _offsets(np.concatenate([part.lengths for part in all_]))
        if all(part.types is None for part in all_):
            return cls(ids, offsets)
        types = [np.zeros(len(p.ids), np.uint8) if p.types is None else p.types for p in all_]
        return cls(ids, offsets, np.concatenate(types))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64[np.ndarray, " inputs"]:
        """The number of tokens of each input."""
        return np.diff(self.offsets)

    def lengths_of(self, rows: Int[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """The number of tokens of the inputs with these numbers."""
        lengths: Int64[np.ndarray, " rows"] = self.offsets[rows + 1] - self.offsets[rows]
        return lengths

    def lists(self) -> list[list[int]]:
        """Each input as a list of its token numbers."""
        ends = self.offsets.tolist()
        ids = self.ids.tolist()
        return [ids[start:end] for start, end in pairwise(ends)]

    def take(self, rows: Int[np.ndarray, " rows"]) -> "Tokens":
        """The inputs with these numbers, in this order; numbers may repeat."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths_of(rows)
        offsets = _offsets(lengths)
        indices = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Tokens(
            self.ids[indices], offsets, None if self.types is None else self.types[indices]
        )


def batches_by_length(lengths: Int[np.ndarray, " inputs"], budget: int) -> Iterator[slice]:
    """Divide inputs of descending lengths into batches of at most `budget` tokens with padding.

    An input that is longer than `budget` is a batch by itself.
    """
    start = 0
    while start < len(lengths):
        count = max(budget // max(int(lengths[start]), 1), 1)
        end = min(start + count, len(lengths))
        yield slice(start, end)
        start = end


def _offsets(lengths: Int[np.ndarray, " inputs"]) -> Int64[np.ndarray, " bounds"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


_PROBES = ("a", "b")


@dataclass(frozen=True)
class InputTemplate:
    """A tokenizer's special tokens, as pairs of number and type; it makes inputs from contents.

    Attributes:
        before: The tokens before the first sentence.
        between: The tokens between the sentences of a pair.
        after: The tokens after the second sentence.
        end: The tokens after a single sentence.
        second: The type of the second sentence's tokens.
    """

    before: tuple[tuple[int, int], ...]
    between: tuple[tuple[int, int], ...]
    after: tuple[tuple[int, int], ...]
    end: tuple[tuple[int, int], ...]
    second: int

    @classmethod
    def of(cls, tokenizer: Any) -> "InputTemplate":
        """Read a tokenizer's template from a single input and a pair.

        Raises:
            CheckpointError: The tokenizer does not separate the two sentences of a pair, or
                changes their order.
        """
        left, right = (
            list(tokenizer(probe, add_special_tokens=False)["input_ids"]) for probe in _PROBES
        )
        alone, pair = _numbered(tokenizer(_PROBES[0])), _numbered(tokenizer(*_PROBES))
        marks = tokenizer(*_PROBES, return_special_tokens_mask=True)["special_tokens_mask"]
        places = [place for place, mark in enumerate(marks) if not mark]
        if left and right and [pair[place][0] for place in places] == [*left, *right]:
            first, second = places[0], places[len(left)]
            template = cls(
                before=tuple(pair[:first]),
                between=tuple(pair[first + len(left) : second]),
                after=tuple(pair[second + len(right) :]),
                end=tuple(alone[first + len(left) :]),
                second=pair[second][1],
            )
            sides = Tokens.of([left]), Tokens.of([right])
            both, single = template.pairs(*sides), template.singles(sides[0])
            kinds = [] if both.types is None else both.types.tolist()
            same = list(zip(both.ids.tolist(), kinds, strict=False)) == pair
            same = same and single.ids.tolist() == [number for number, _ in alone]
            if same and template.between:
                return template
        rule = "its tokenizer does not put two separated sentences into one input"
        raise CheckpointError(Fault("encoder.checkpoint", rule=rule, move="Use another encoder."))

    @property
    def single_length(self) -> int:
        """The number of special tokens of one sentence."""
        return len(self.before) + len(self.end)

    @property
    def pair_length(self) -> int:
        """The number of special tokens of a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    def singles(self, contents: Tokens) -> Tokens:
        """The inputs of single sentences."""
        before, end = ([number for number, _ in part] for part in (self.before, self.end))
        return Tokens.of([[*before, *ids, *end] for ids in contents.lists()])

    def pairs(self, first: Tokens, second: Tokens) -> Tokens:
        """The inputs of pairs."""
        inputs = [
            [
                *self.before,
                *((number, 0) for number in left),
                *self.between,
                *((number, self.second) for number in right),
                *self.after,
            ]
            for left, right in zip(first.lists(), second.lists(), strict=True)
        ]
        ids, types = ([[token[part] for token in row] for row in inputs] for part in (0, 1))
        return Tokens.of(ids, types)


def _numbered(inputs: Any) -> list[tuple[int, int]]:
    """The number and the type of each token of an input."""
    ids = inputs["input_ids"]
    return list(zip(ids, inputs.get("token_type_ids") or [0] * len(ids), strict=True))
