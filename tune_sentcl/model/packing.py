"""Inputs one behind the other through a transformer's own layers, so that nothing is padded.

Half of the tokens of a padded batch of sentences are padding. Here all inputs are one sequence to
the transformer, each token with the position that it has in its own input; what acts on one token
at a time needs nothing else. Only attention has to know where an input ends. It finds that in the
keyword `packing`, which the library hands down to the attention function that the model's config
names. Dropout draws for tokens that are there, so its noise is not that of a padded batch, though
drawn alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor

from tune_sentcl.model.placing import placed
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Mask, TokenStates

# Attention is cheap beside the layers around it: many small groups cost more than some padding.
_LEAST_FILLED = 0.65


@dataclass(frozen=True)
class Group:
    """Inputs of like length, which attend together.

    Attributes:
        count: How many inputs.
        width: Tokens of the longest.
        places: For each of their tokens its place among count x width; None: all are taken.
        mask: Which places hold a token, to be laid over attention's scores; None: all.
    """

    count: int
    width: int
    places: Int[Tensor, " tokens"] | None
    mask: Tensor | None

    @property
    def tokens(self) -> int:
        """How many tokens they have."""
        return self.count * self.width if self.places is None else len(self.places)


class Packing:
    """Where the tokens of packed inputs are.

    Attributes:
        tokens: The inputs, the longest first.
        device: Where they are encoded.
    """

    def __init__(self, tokens: Tokens, device: torch.device) -> None:
        """Plan a forward pass.

        Args:
            tokens: One input or more; none is empty.
            device: Where they are encoded.
        """
        self.device = device
        self._order = np.argsort(-tokens.lengths, kind="stable")
        self.tokens = tokens.take(self._order)
        self._lengths = self.tokens.lengths

    def inputs(self, padding: int | None) -> dict[str, Tensor]:
        """What the transformer takes: one sequence of all tokens.

        Args:
            padding: From `padding_position`; the token of that number has that position as well.
        """
        ids = self.tokens.ids.astype(np.int64)
        if padding is None:
            positions = self._within
        else:
            counted = ids != padding
            before = np.concatenate([[0], np.cumsum(counted)])
            since = before[1:] - np.repeat(before[self.tokens.offsets[:-1]], self._lengths)
            positions = since * counted + padding
        types = self.tokens.types
        kinds = np.zeros_like(ids) if types is None else types.astype(np.int64)
        found = placed(np.stack([ids, positions, kinds]), self.device).unsqueeze(1)
        return {"input_ids": found[0], "position_ids": found[1], "token_type_ids": found[2]}

    def laid_out(self, states: Tensor) -> tuple[TokenStates, Mask]:
        """Lay packed states out as a padded batch, in the order in which the inputs were given.

        Args:
            states: Of shape 1 x tokens x dim.

        Returns:
            States with zeros for padding, and the mask that says where they are.
        """
        rows, width = len(self._order), int(self._lengths[0])
        flat = np.repeat(self._order * width, self._lengths) + self._within
        places = placed(flat, self.device)
        mask = torch.zeros(rows * width, dtype=torch.long, device=self.device)
        mask[places] = 1
        laid = spread(states[0], places, rows * width)
        return laid.view(rows, width, -1), mask.view(rows, width)

    @cached_property
    def groups(self) -> list[Group]:
        """The inputs in groups, none of which is padded by more than half its tokens."""
        return list(self._grouped())

    @cached_property
    def offsets(self) -> Int[Tensor, " bounds"]:
        """Where each input begins, and the last one ends."""
        return placed(self.tokens.offsets, self.device)

    @property
    def longest(self) -> int:
        """Tokens of the longest input."""
        return int(self._lengths[0])

    @property
    def shortest(self) -> int:
        """Tokens of the shortest input."""
        return int(self._lengths[-1])

    @cached_property
    def _within(self) -> Int64[np.ndarray, " tokens"]:
        """Which token of its input each one is."""
        starts = np.repeat(self.tokens.offsets[:-1], self._lengths)
        within: Int64[np.ndarray, " tokens"] = np.arange(len(starts)) - starts
        return within

    def _grouped(self) -> Iterator[Group]:
        # From the longest down: a group ends where an input would fill too little of its width.
        starts = [0]
        for row, length in enumerate(self._lengths.tolist()):
            if length < _LEAST_FILLED * self._lengths[starts[-1]]:
                starts.append(row)
        for start, end in pairwise([*starts, len(self._lengths)]):
            lengths, width = self._lengths[start:end], int(self._lengths[start])
            if lengths[-1] == width:
                yield Group(end - start, width, None, None)
            else:
                held = np.arange(width) < lengths[:, None]
                mask = placed(held, self.device)[:, None, None]
                places = placed(np.flatnonzero(held), self.device)
                yield Group(end - start, width, places, mask)


def spread(rows: Tensor, places: Tensor, room: int) -> Tensor:
    """Put rows at distinct places of a larger matrix of zeros.

    Torch's own backward pass for this and for its inverse adds up rows, as though places could
    repeat; here they are copied.

    Args:
        rows: A matrix.
        places: One a row.
        room: Rows of what is returned.
    """
    laid: Tensor = _Spread.apply(rows, places, room)  # type: ignore[no-untyped-call]
    return laid


def gather(matrix: Tensor, places: Tensor) -> Tensor:
    """The inverse of `spread`: rows read from distinct places of a matrix."""
    rows: Tensor = _Gather.apply(matrix, places)  # type: ignore[no-untyped-call]
    return rows


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, room: int) -> Tensor:
        ctx.save_for_backward(places)
        return rows.new_zeros(room, rows.shape[1]).index_copy_(0, places, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradients[0].index_select(0, places), None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.room = len(matrix)
        return matrix.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        rows = gradients[0].contiguous()
        return rows.new_zeros(ctx.room, rows.shape[1]).index_copy_(0, places, rows), None
