"""Attention among packed tokens: each sees those of its own input."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tune_sentcl.model.packing import Packing, gather, spread

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
