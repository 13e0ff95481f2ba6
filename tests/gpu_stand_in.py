"""A GPU's code path on the CPU, with only the attention kernel or CUDA's graphs replaced."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from weakref import WeakMethod

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tune_sentcl.model import packing
from tune_sentcl.train import capture, graphs


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
    assert (bias, keep_sums) == (None, True) and mask_type in (0, 1)
    assert query.dtype == key.dtype == value.dtype and query.shape == key.shape
    assert key_bounds is bounds and bounds.dtype == torch.int32
    assert key.shape[1] >= key_longest == longest >= int(bounds.diff().max())
    assert int(bounds[-1]) == query.shape[1]
    ends = bounds.tolist()
    found = []
    for start, end in pairwise(ends):
        if end > start:
            q, k, v = (part[:, start:end].transpose(1, 2) for part in (query, key, value))
            causal = mask_type == 1
            one = scaled_dot_product_attention(q, k, v, None, dropout, causal, scale=scale)
            found.append(one.transpose(1, 2))
    return (torch.cat(found, dim=1),)


def attend_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have packed inputs attend by the GPU's call."""
    monkeypatch.setattr(packing, "_KERNEL", attention_by_bounds)
    monkeypatch.setattr(packing, "attend_in_groups", packing.attend_by_bounds)


class _Stream:
    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wait_stream(self, other: "_Stream") -> None:
        assert other.device == self.device


def replay_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have captures note what they are given to call, and replays call it.

    Returns:
        The name of what each replay of trainings to come has called, but not of those by which
        a graph is compared with launches.
    """
    attend_as_on_a_gpu(monkeypatch)
    replayed: list[str] = []

    def captured(call: Callable[[], None], **_: Any) -> SimpleNamespace:
        # A graph on a GPU does not hold the object whose method it has captured.
        held: Callable[[], Any] = WeakMethod(call) if hasattr(call, "__self__") else lambda: call

        def replay() -> None:
            replayed.append(call_name)
            held()()

        call_name = call.__name__
        return SimpleNamespace(replay=replay)

    compared = graphs._Graph.computes_as_launched

    def uncounted(graph: Any, rounding: float) -> bool:
        before = len(replayed)
        is_right = compared(graph, rounding)
        del replayed[before:]
        return is_right

    for name, value in {
        "graph_pool_handle": lambda: None,
        "Stream": _Stream,
        "current_stream": _Stream,
        "stream": lambda _: nullcontext(),
        "memory_allocated": lambda _: 0,
        "get_rng_state": lambda _: torch.get_rng_state(),
        "set_rng_state": lambda state, _: torch.set_rng_state(state),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(graphs, "free_memory", lambda _: 2**40)
    monkeypatch.setattr(capture, "captured", captured)
    monkeypatch.setattr(graphs._Graph, "computes_as_launched", uncounted)
    monkeypatch.setattr(graphs, "_GRAPHED_ON", "cpu")
    monkeypatch.setattr(graphs, "_FIRST_TORCH", "2")
    return replayed
