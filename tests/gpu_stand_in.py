"""A GPU's code path on the CPU, with only the attention kernel replaced."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tune_sentcl.model import packing


def attention_by_bounds(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: None,
    bounds: Tensor,
    key_bounds: Tensor,
    longest: int,
    key_longest: int,
    dropout: float,
    mask_type: int,
    keep_sums: bool,
    *,
    scale: float | None,
) -> tuple[Tensor]:
    """What torch's memory-efficient kernel computes, one input after the other."""
    assert (bias, mask_type, keep_sums) == (None, 0, True)
    assert key_bounds is bounds and bounds.dtype == torch.int32
    assert key.shape[1] >= key_longest == longest >= int(bounds.diff().max())
    assert int(bounds[-1]) == query.shape[1]
    ends = bounds.tolist()
    found = []
    for start, end in pairwise(ends):
        if end > start:
            q, k, v = (part[:, start:end].transpose(1, 2) for part in (query, key, value))
            one = scaled_dot_product_attention(q, k, v, None, dropout, scale=scale)
            found.append(one.transpose(1, 2))
    return (torch.cat(found, dim=1),)


def attend_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have packed inputs attend by the GPU's call."""

    def attend(given: list[Tensor], layout: Any, dropout: float, scale: float | None) -> Tensor:
        return packing.attend_by_bounds(given, layout, dropout, scale)

    monkeypatch.setattr(packing, "_KERNEL", attention_by_bounds)
    monkeypatch.setattr(packing, "attend_in_groups", attend)
