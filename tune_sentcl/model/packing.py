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
from torch.nn.functional import scaled_dot_product_attention

from tune_sentcl.model.device import placed
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


ATTENTION = "tune_sentcl_packed"
"""The name of the attention function in transformers' table."""

# Each token sees all others of its input, positions are absolute and may be given, and keywords
# reach the attention function. MPNet has an attention of its own; ModernBERT's has windows.
_KINDS = frozenset({"bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"})


def make_packable(transformer: Any) -> bool:
    """Have a transformer attend as `packing` says, where it is given; without it nothing changes.

    Returns:
        Whether that can be done; else the transformer is left as it was.
    """
    config = transformer.config
    if (
        config.model_type not in _KINDS
        or getattr(config, "is_decoder", False)
        or getattr(config, "position_embedding_type", "absolute") != "absolute"
        or config._attn_implementation not in ("sdpa", ATTENTION)
    ):
        return False
    _register()
    transformer.set_attn_implementation(ATTENTION)
    return True


def _register() -> None:
    """Tell transformers of the attention function; its table of functions is meant for that."""
    import transformers
    from transformers.masking_utils import sdpa_mask

    library: Any = transformers
    library.AttentionInterface.register(ATTENTION, _attend)
    library.AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **rest: Any
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; queries, keys, values are 1 x heads x tokens x width."""
    packing: Packing | None = rest.get("packing")
    if packing is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **rest
        )
        return found
    attend = attend_nested if query.is_cuda else attend_in_groups
    return attend([query, key, value], packing, rest["dropout"], rest["scaling"]), None


def attend_in_groups(
    given: list[Tensor], packing: Packing, dropout: float, scale: float | None
) -> Tensor:
    """Attend among packed tokens with a call for each group, which suits a CPU.

    Args:
        given: Queries, keys and values, of shape 1 x heads x tokens x width.
        packing: Which tokens see each other.
        dropout: The share of attention's probabilities that is dropped.
        scale: Of the scores.

    Returns:
        1 x tokens x heads x width.
    """
    _, heads, total, width = given[0].shape
    sizes = [group.tokens for group in packing.groups]
    flat = (part.transpose(1, 2).reshape(total, heads * width).split(sizes) for part in given)
    found = []
    for group, *parts in zip(packing.groups, *flat, strict=True):
        room = group.count * group.width
        if group.places is not None:
            parts = [spread(part, group.places, room) for part in parts]
        query, key, value = (
            part.view(group.count, group.width, heads, width).transpose(1, 2) for part in parts
        )
        states = scaled_dot_product_attention(query, key, value, group.mask, dropout, scale=scale)
        rows = states.transpose(1, 2).reshape(room, heads * width)
        found.append(rows if group.places is None else gather(rows, group.places))
    return torch.cat(found).view(1, total, heads, width)


def attend_nested(
    given: list[Tensor], packing: Packing, dropout: float, scale: float | None
) -> Tensor:
    """The same in one call, whose kernel on a GPU knows of lengths."""
    query, key, value = (
        torch.nested.nested_tensor_from_jagged(
            part[0].transpose(0, 1).contiguous(),
            packing.offsets,
            min_seqlen=packing.shortest,
            max_seqlen=packing.longest,
        ).transpose(1, 2)
        for part in given
    )
    states = scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)
    found: Tensor = states.transpose(1, 2).values()
    return found.unsqueeze(0)
