"""Packing: all inputs of a batch as one sequence through a transformer, without padding.

Half of the tokens of a padded batch of sentences are padding. A packed batch is one sequence, in
which each token has the position in its own input. Layers that act on single tokens need no
change. Attention must know where an input ends. It reads that from the keyword `packing`, which
transformers passes to the attention function that the model's config names. Dropout draws only for
real tokens, so its noise differs from that of a padded batch, with the same distribution.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from tune_sentcl.model.checkpoints.checkpoint_files import PACKED_KINDS
from tune_sentcl.model.device import to_device
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Mask, TokenStates

# An input that fills at least this share of a group's width joins the group: attention is cheap
# beside the other layers, so many small groups would cost more than padding.
_LEAST_FILLED = 0.65


@dataclass(frozen=True)
class Group:
    """Inputs of similar length, whose attention is computed as one padded batch.

    Attributes:
        count: The number of inputs.
        width: Tokens of the longest input.
        indices: The index of each token among the count x width positions; None: no padding.
        mask: The attention mask of the positions that hold a token; None: no padding.
    """

    count: int
    width: int
    indices: Int[Tensor, " tokens"] | None
    mask: Tensor | None

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.count * self.width if self.indices is None else len(self.indices)


@dataclass(frozen=True)
class Bounds:
    """The bounds of the inputs in a packed sequence, for a GPU's attention kernel.

    Attributes:
        bounds: The start of each input, then the end of the last, as 32-bit integers.
        longest: An upper limit of the tokens of an input.
    """

    bounds: Int[Tensor, " bounds"]
    longest: int


class Packing:
    """The layout of packed inputs.

    Attributes:
        tokens: The inputs, the longest first.
        order: The position of each input of `tokens` in the given order.
        device: The device of the transformer.
    """

    def __init__(self, tokens: Tokens, device: torch.device) -> None:
        """Lay out at least one input; no input may be empty."""
        self.device = device
        self.order = np.argsort(-tokens.lengths, kind="stable")
        self.tokens = tokens.take(self.order)
        self._lengths = self.tokens.lengths

    def inputs(self, padding: int | None) -> dict[str, Tensor]:
        """The transformer's inputs: all tokens as one sequence; for `padding` see `numbers`."""
        return named_inputs(to_device(self.numbers(padding), self.device))

    def numbers(self, padding: int | None) -> Int64[np.ndarray, "3 tokens"]:
        """The number, position and segment of each token, for `named_inputs`.

        Args:
            padding: From `padding_position`; tokens with this number also get this position.
        """
        ids = self.tokens.ids.astype(np.int64)
        if padding is None:
            position_ids = self._within
        else:
            counted = ids != padding
            before = np.concatenate([[0], np.cumsum(counted)])
            since = before[1:] - np.repeat(before[self.tokens.offsets[:-1]], self._lengths)
            position_ids = since * counted + padding
        types = self.tokens.types
        kinds = np.zeros_like(ids) if types is None else types.astype(np.int64)
        return np.stack([ids, position_ids, kinds])

    def padded_states(self, states: Tensor) -> tuple[TokenStates, Mask]:
        """Turn packed states of shape 1 x tokens x dim into a padded batch in the given order.

        Returns:
            The states, with zeros as padding, and the mask of the tokens.
        """
        rows, width = len(self.order), int(self._lengths[0])
        flat = np.repeat(self.order * width, self._lengths) + self._within
        indices = to_device(flat, self.device)
        mask = torch.zeros(rows * width, dtype=torch.long, device=self.device)
        # `mask[indices] = 1` would wait until the 1 is copied to the GPU.
        mask.index_fill_(0, indices, 1)
        padded = scatter_rows(states[0], indices, rows * width)
        return padded.view(rows, width, -1), mask.view(rows, width)

    @cached_property
    def groups(self) -> list[Group]:
        """The inputs in groups of similar length, so that padding stays small."""
        return list(self._grouped())

    @cached_property
    def bounds(self) -> Int[Tensor, " bounds"]:
        """The start of each input, then the end of the last, as 32-bit integers."""
        return to_device(self.tokens.offsets.astype(np.int32), self.device)

    @property
    def longest(self) -> int:
        """Tokens of the longest input."""
        return int(self._lengths[0])

    @cached_property
    def _within(self) -> Int64[np.ndarray, " tokens"]:
        """The position of each token in its own input."""
        starts = np.repeat(self.tokens.offsets[:-1], self._lengths)
        within: Int64[np.ndarray, " tokens"] = np.arange(len(starts)) - starts
        return within

    def _grouped(self) -> Iterator[Group]:
        # Inputs come from the longest to the shortest. An input that would fill too little of its
        # group's width starts a new group.
        starts = [0]
        for row, length in enumerate(self._lengths.tolist()):
            if length < _LEAST_FILLED * self._lengths[starts[-1]]:
                starts.append(row)
        for start, end in pairwise([*starts, len(self._lengths)]):
            lengths, width = self._lengths[start:end], int(self._lengths[start])
            if lengths[-1] == width:
                yield Group(end - start, width, None, None)
            else:
                is_token = np.arange(width) < lengths[:, None]
                mask = to_device(is_token, self.device)[:, None, None]
                indices = to_device(np.flatnonzero(is_token), self.device)
                yield Group(end - start, width, indices, mask)


def named_inputs(numbers: Int64[Tensor, "3 tokens"]) -> dict[str, Tensor]:
    """The transformer's inputs from `Packing.numbers` on its device."""
    names = ("input_ids", "position_ids", "token_type_ids")
    return dict(zip(names, numbers.unsqueeze(1), strict=True))


def scatter_rows(rows: Tensor, indices: Tensor, num_positions: int) -> Tensor:
    """Copy rows to distinct indices of a zero matrix of `num_positions` rows."""
    return rows.new_zeros(num_positions, rows.shape[1]).index_copy(0, indices, rows)


ATTENTION = "tune_sentcl_packed"
"""The name of the attention function in transformers' table."""

_KERNEL: Any = getattr(torch.ops.aten, "_efficient_attention_forward", None)
_ARGUMENTS = (
    *("query", "key", "value", "bias", "cu_seqlens_q", "cu_seqlens_k"),
    *("max_seqlen_q", "max_seqlen_k", "dropout_p", "custom_mask_type", "compute_log_sumexp"),
)


def make_packable(transformer: Any) -> bool:
    """Make a transformer's attention follow the keyword `packing`; without it, nothing changes.

    Returns:
        Whether the transformer supports packing; if not, it is left unchanged.
    """
    config = transformer.config
    if config.model_type not in PACKED_KINDS:
        return False
    if config._attn_implementation not in ("sdpa", ATTENTION):
        return False
    _register()
    transformer.set_attn_implementation(ATTENTION)
    return True


def packs_on(device: torch.device) -> bool:
    """Whether a device can compute the attention of packed inputs.

    The kernel is private to torch, so a release may change it; a GPU then pads inputs.
    """
    return device.type == "cpu" or (device.type == "cuda" and _knows_kernel())


@cache
def _knows_kernel() -> bool:
    schema = None if _KERNEL is None else _KERNEL.default._schema
    names = [argument.name for argument in schema.arguments] if schema else []
    return names[: len(_ARGUMENTS)] == [*_ARGUMENTS]


def _register() -> None:
    import transformers
    from transformers.masking_utils import sdpa_mask

    library: Any = transformers
    library.AttentionInterface.register(ATTENTION, _attend)
    library.AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **rest: Any
) -> tuple[Tensor, None]:
    """The attention function; queries, keys and values are 1 x heads x tokens x width."""
    packing: Packing | Bounds | None = rest.get("packing")
    if packing is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        attended: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **rest
        )
        return attended
    causal, window = rest.get("is_causal"), rest.get("sliding_window")
    causal = module.is_causal if causal is None else causal
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        # Several heads of queries share one head of keys and values.
        key, value = (part.repeat_interleave(repeats, dim=1) for part in (key, value))
    # Under autocast, the rotary embedding returns queries and keys in single precision.
    given = [part.to(value.dtype) for part in (query, key, value)]
    dropout, scale = rest["dropout"], rest["scaling"]
    if window is not None and window < packing.longest:
        return attend_in_windows(given, packing, dropout, scale, causal, window), None
    if query.is_cuda or isinstance(packing, Bounds):
        return attend_by_bounds(given, packing, dropout, scale, causal), None
    return attend_in_groups(given, packing, dropout, scale, causal), None


def attend_in_groups(
    given: list[Tensor], packing: Packing, dropout: float, scale: float | None, causal: bool
) -> Tensor:
    """Attention of packed tokens by one call per group, which is fast on a CPU.

    Args:
        given: Queries, keys and values of shape 1 x heads x tokens x width.
        packing: The layout of the tokens.
        dropout: The share of attention probabilities to drop.
        scale: The factor of the scores.
        causal: Whether a token sees no later tokens.

    Returns:
        The attended values of shape 1 x tokens x heads x width.
    """
    _, heads, total, width = given[0].shape
    sizes = [group.tokens for group in packing.groups]
    flat = (part.transpose(1, 2).reshape(total, heads * width).split(sizes) for part in given)
    attended = []
    for group, *parts in zip(packing.groups, *flat, strict=True):
        num_positions = group.count * group.width
        if group.indices is not None:
            parts = [scatter_rows(part, group.indices, num_positions) for part in parts]
        query, key, value = (
            part.view(group.count, group.width, heads, width).transpose(1, 2) for part in parts
        )
        # Padding comes last, so the causal mask already hides it.
        mask = None if causal else group.mask
        states = scaled_dot_product_attention(
            query, key, value, mask, dropout, is_causal=causal, scale=scale
        )
        rows = states.transpose(1, 2).reshape(num_positions, heads * width)
        attended.append(rows if group.indices is None else rows.index_select(0, group.indices))
    return torch.cat(attended).view(1, total, heads, width)


def attend_by_bounds(
    given: list[Tensor],
    packing: "Packing | Bounds",
    dropout: float,
    scale: float | None,
    causal: bool,
) -> Tensor:
    """Attention of packed tokens by one call of torch's memory-efficient kernel.

    torch offers no public function for this: `varlen_attn` has no dropout, and nested tensors take
    five times the kernel's time on the host.
    """
    query, key, value = (part.transpose(1, 2) for part in given)
    bounds, longest = packing.bounds, packing.longest
    attended: Tensor = _KERNEL(
        *(query, key, value, None, bounds, bounds, longest, longest, dropout, int(causal), True),
        scale=scale,
    )[0]
    return attended


def attend_in_windows(
    given: list[Tensor],
    packing: "Packing | Bounds",
    dropout: float,
    scale: float | None,
    causal: bool,
    window: int,
) -> Tensor:
    """Attention of packed tokens in which a token sees only tokens closer than `window`.

    The tokens are cut into blocks; a block's queries meet the keys of the block, and of the blocks
    before and after it. The number of tokens alone decides all shapes, so a CUDA graph can hold
    them. The kernel's own `window_size` cannot be used, because torch's backward pass lacks it.
    """
    total, size = given[0].shape[2], -(-max(window - 1, 1) // 8) * 8
    count = -(-total // size)

    def near(rows: Tensor) -> Tensor:
        blocks = rows.unflatten(0, (count + 2, size))
        return torch.cat([blocks[start : start + count] for start in range(3 - causal)], dim=1)

    # One block of zeros precedes the first block and another follows the last, so every block has
    # two neighbors.
    around = (0, 0, 0, 0, size, (count + 1) * size - total)
    query, key, value = (pad(part[0].transpose(0, 1), around) for part in given)
    places = torch.arange(-size, (count + 1) * size, dtype=torch.int32, device=query.device)
    inputs = torch.searchsorted(packing.bounds, places, right=True)
    own = slice(size, -size)
    shape = (count, size, 1)
    distance = places[own].view(shape) - near(places)[:, None]
    seen = (distance < window) & (distance >= 0 if causal else distance > -window)
    seen &= inputs[own].view(shape) == near(inputs)[:, None]
    states = scaled_dot_product_attention(
        query[own].unflatten(0, (count, size)).transpose(1, 2),
        near(key).transpose(1, 2),
        near(value).transpose(1, 2),
        seen[:, None],
        dropout,
        scale=scale,
    )
    return states.transpose(1, 2).flatten(0, 1)[None, :total]
