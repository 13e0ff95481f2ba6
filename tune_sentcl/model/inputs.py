"""Where a tokenizer puts its special tokens, for one sentence and for a pair in one input.

BERT has [CLS] a [SEP] b [SEP] with types 0 and 1, RoBERTa <s> a </s></s> b </s> without types.
What a tokenizer does is read off what it makes of a short pair, so that no kind needs a name here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.model.tokens import Tokens

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
