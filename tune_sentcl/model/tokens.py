"""Tokenized inputs one after another in flat arrays, so that a batch is one vectorised gather."""

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


_Fixed = tuple[tuple[int, int], ...]

_PROBES = ("a", "b")


@dataclass(frozen=True)
class Segments:
    """One input of two sentences.

    Attributes:
        ids: Token numbers, special tokens included.
        types: 0 or 1 for each token, as the tokenizer gives them; all 0 where it gives none.
    """

    ids: list[int]
    types: list[int]


@dataclass(frozen=True)
class InputTemplate:
    """A tokenizer's special tokens, as (number, type) each.

    Attributes:
        before: In front of the first sentence.
        between: Between the sentences of a pair.
        after: Behind the second sentence.
        end: Behind a single sentence.
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
            CheckpointError: It does not keep the two sentences of a pair apart and in order.
        """
        contents = tuple(
            list(tokenizer(probe, add_special_tokens=False)["input_ids"]) for probe in _PROBES
        )
        single = _marked(tokenizer(_PROBES[0], return_special_tokens_mask=True))
        pair = _marked(tokenizer(*_PROBES, return_special_tokens_mask=True))
        places = [place for place, (_, _, special) in enumerate(pair) if not special]
        if not all(contents) or [pair[place][0] for place in places] != [
            *contents[0],
            *contents[1],
        ]:
            raise _unfit()
        size = len(contents[0])
        first, second = places[0], places[size]
        tokens = [(number, kind) for number, kind, _ in pair]
        alone = [(number, kind) for number, kind, _ in single]
        template = cls(
            before=tuple(tokens[:first]),
            between=tuple(tokens[first + size : second]),
            after=tuple(tokens[second + size :]),
            end=tuple(alone[first + size :]),
            second=tokens[second][1],
        )
        both = template.pair(*contents)
        if (
            not template.between
            or list(zip(both.ids, both.types, strict=True)) != tokens
            or template.single(contents[0]) != [number for number, _ in alone]
        ):
            raise _unfit()
        return template

    @property
    def single_length(self) -> int:
        """Special tokens of one sentence."""
        return len(self.before) + len(self.end)

    @property
    def pair_length(self) -> int:
        """Special tokens of a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    def single(self, content: Sequence[int]) -> list[int]:
        """One sentence's input."""
        return [*(n for n, _ in self.before), *content, *(n for n, _ in self.end)]

    def singles(self, contents: Tokens) -> Tokens:
        """The inputs of many sentences, each as `single` has it."""
        found = _woven((self.before, contents, self.end))
        return Tokens(found.ids, found.offsets)

    def pairs(self, first: Tokens, second: Tokens) -> Tokens:
        """The inputs of many pairs, each as `pair` has it."""
        kinds = np.full(len(second.ids), self.second, dtype=np.uint8)
        behind = Tokens(second.ids, second.offsets, kinds)
        return _woven((self.before, first, self.between, behind, self.after))

    def pair(self, first: Sequence[int], second: Sequence[int]) -> Segments:
        """A pair's input."""
        tokens = [
            *self.before,
            *((number, 0) for number in first),
            *self.between,
            *((number, self.second) for number in second),
            *self.after,
        ]
        return Segments([number for number, _ in tokens], [kind for _, kind in tokens])


def _woven(parts: Sequence[_Fixed | Tokens]) -> Tokens:
    """Inputs made of parts in turn, some of them the same in every input."""
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
            places = np.repeat(starts, part.lengths) + own
            ids[places] = part.ids
            types[places] = 0 if part.types is None else part.types
        else:
            for step, (number, kind) in enumerate(part):
                ids[starts + step], types[starts + step] = number, kind
        starts += size
    return Tokens(ids, offsets, types)


def _unfit() -> CheckpointError:
    rule = "its tokenizer does not put two sentences, told apart, into one input"
    return CheckpointError(Fault("encoder.checkpoint", "", "", rule, "Take another."))


def _marked(found: Any) -> list[tuple[int, int, int]]:
    ids = found["input_ids"]
    types = found.get("token_type_ids") or [0] * len(ids)
    return list(zip(ids, types, found["special_tokens_mask"], strict=True))
