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
    """Some inputs of an encoder; the arrays may be memory-mapped, and are never written to.

    Attributes:
        ids: Token numbers of all inputs, one input after another, special tokens included.
        offsets: The start of each input in `ids`, and then the end of the last input.
        types: The segment of each token; None if all tokens are in the first.
    """

    ids: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " bounds"]
    types: UInt8[np.ndarray, " tokens"] | None = None

    @classmethod
    def of(
        cls, inputs: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> "Tokens":
        """Join lists of token numbers, which may be empty; without types all are in segment 0."""
        offsets = _offsets(np.fromiter(map(len, inputs), np.int64, len(inputs)))
        total = int(offsets[-1])
        ids = np.fromiter(chain.from_iterable(inputs), np.int32, total)
        if types is None:
            return cls(ids, offsets)
        return cls(ids, offsets, np.fromiter(chain.from_iterable(types), np.uint8, total))

    @classmethod
    def concatenate(cls, parts: Iterable["Tokens"]) -> "Tokens":
        """Join the inputs of one part or more; parts without types are in the first segment."""
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
        """The number of tokens of some inputs."""
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
        indices = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Tokens(
            self.ids[indices], offsets, None if self.types is None else self.types[indices]
        )


def batches_by_length(lengths: Int[np.ndarray, " inputs"], budget: int) -> Iterator[slice]:
    """Divide inputs of falling lengths into batches of at most `budget` tokens with padding.

    A longer input is a batch alone.
    """
    start = 0
    while start < len(lengths):
        count = max(budget // max(int(lengths[start]), 1), 1)
        end = min(start + count, len(lengths))
        yield slice(start, end)
        start = end


def _offsets(lengths: Int[np.ndarray, " inputs"]) -> Int64[np.ndarray, " bounds"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


_Fixed = tuple[tuple[int, int], ...]

_PROBES = ("a", "b")


@dataclass(frozen=True)
class InputTemplate:
    """A tokenizer's special tokens, as (number, type) each; from contents to inputs.

    Attributes:
        before: Before the first sentence.
        between: Between the sentences of a pair.
        after: After the second sentence.
        end: After a single sentence.
        second: The type of the second sentence's tokens.
    """

    before: tuple[tuple[int, int], ...]
    between: tuple[tuple[int, int], ...]
    after: tuple[tuple[int, int], ...]
    end: tuple[tuple[int, int], ...]
    second: int

    @classmethod
    def of(cls, tokenizer: Any) -> "InputTemplate":
        """Read a tokenizer's template.

        Raises:
            CheckpointError: It does not separate the two sentences of a pair, or changes their
                order.
        """
        contents = tuple(
            list(tokenizer(probe, add_special_tokens=False)["input_ids"]) for probe in _PROBES
        )
        single = _marked(tokenizer(_PROBES[0], return_special_tokens_mask=True))
        pair = _marked(tokenizer(*_PROBES, return_special_tokens_mask=True))
        indices = [index for index, (_, _, special) in enumerate(pair) if not special]
        if not all(contents) or [pair[index][0] for index in indices] != [
            *contents[0],
            *contents[1],
        ]:
            raise _unfit()
        size = len(contents[0])
        first, second = indices[0], indices[size]
        tokens = [(number, kind) for number, kind, _ in pair]
        alone = [(number, kind) for number, kind, _ in single]
        template = cls(
            before=tuple(tokens[:first]),
            between=tuple(tokens[first + size : second]),
            after=tuple(tokens[second + size :]),
            end=tuple(alone[first + size :]),
            second=tokens[second][1],
        )
        left, right = (Tokens.of([content]) for content in contents)
        both = template.pairs(left, right)
        joined = [] if both.types is None else zip(both.ids, both.types, strict=True)
        one = [number for number, _ in alone]
        if (
            not template.between
            or list(joined) != tokens
            or template.singles(left).lists() != [one]
        ):
            raise _unfit()
        return template

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
        found = _woven((self.before, contents, self.end))
        return Tokens(found.ids, found.offsets)

    def pairs(self, first: Tokens, second: Tokens) -> Tokens:
        """The inputs of pairs."""
        kinds = np.full(len(second.ids), self.second, dtype=np.uint8)
        typed = Tokens(second.ids, second.offsets, kinds)
        return _woven((self.before, first, self.between, typed, self.after))


def _woven(parts: Sequence[_Fixed | Tokens]) -> Tokens:
    """Build each input from parts: fixed special tokens, or the input's own tokens."""
    inputs = next(part for part in parts if isinstance(part, Tokens))
    sizes = [part.lengths if isinstance(part, Tokens) else len(part) for part in parts]
    lengths = np.zeros(len(inputs), dtype=np.int64)
    for size in sizes:
        lengths += size
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    ids = np.empty(offsets[-1], dtype=np.int32)
    types = np.zeros(offsets[-1], dtype=np.uint8)
    starts = offsets[:-1].copy()
    for part, size in zip(parts, sizes, strict=True):
        if isinstance(part, Tokens):
            own = np.arange(len(part.ids)) - np.repeat(part.offsets[:-1], part.lengths)
            indices = np.repeat(starts, part.lengths) + own
            ids[indices] = part.ids
            types[indices] = 0 if part.types is None else part.types
        else:
            for step, (number, kind) in enumerate(part):
                ids[starts + step], types[starts + step] = number, kind
        starts += size
    return Tokens(ids, offsets, types)


def _unfit() -> CheckpointError:
    rule = "its tokenizer does not put two separated sentences into one input"
    return CheckpointError(Fault("encoder.checkpoint", "", "", rule, "Take another."))


def _marked(found: Any) -> list[tuple[int, int, int]]:
    ids = found["input_ids"]
    types = found.get("token_type_ids") or [0] * len(ids)
    return list(zip(ids, types, found["special_tokens_mask"], strict=True))
