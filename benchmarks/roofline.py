"""The limit of this machine: its matrix rate, measured, and what a transformer asks of it."""

import time
from collections.abc import Iterable
from typing import Any

import torch

# Tokens of a batch times the sizes of small and middling encoders, and one large square.
_SHAPES = ((128, 384, 384), (2048, 384, 1536), (4096, 768, 768), (2048, 2048, 2048))
_GPU_SHAPES = ((8192, 8192, 8192),)
_SECONDS = 0.4


def matrix_rate(dtype: torch.dtype = torch.float32) -> float:
    """Floating point operations a second of this machine's best matrix product.

    Args:
        dtype: Of both factors. On CUDA, float32 products are taken as torch is set (TF32 or not).
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    best = 0.0
    for rows, inner, columns in (*_SHAPES, *(_GPU_SHAPES if device.type == "cuda" else ())):
        # Processors without units for bfloat16 take minutes for what others do in milliseconds.
        if best == 0 or 2 * rows * inner * columns < 10 * _SECONDS * best:
            best = max(best, _rate(rows, inner, columns, dtype, device))
    return best


def _rate(rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device) -> float:
    left = torch.randn(rows, inner, device=device, dtype=dtype)
    right = torch.randn(inner, columns, device=device, dtype=dtype)
    out = torch.empty(rows, columns, device=device, dtype=dtype)
    torch.mm(left, right, out=out)
    best, until = 0.0, time.perf_counter() + _SECONDS
    # The best of many: a limit is what the machine can give when nothing else runs.
    while (now := time.perf_counter()) < until:
        torch.mm(left, right, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * rows * inner * columns / (time.perf_counter() - now))
    return best


def encoder_flops(config: Any, lengths: Iterable[int], *, training: bool = False) -> float:
    """Floating point operations of an encoder's matrix products over some sentences.

    Args:
        config: The model's `transformers` config (layers, hidden and intermediate size).
        lengths: Tokens of each sentence, without padding.
        training: Whether the backward pass comes too, which takes twice the forward pass.
    """
    hidden, wide = config.hidden_size, config.intermediate_size
    a_token = 2 * (4 * hidden**2 + 2 * hidden * wide)
    one_way = sum(length * a_token + 4 * length**2 * hidden for length in lengths)
    return float(config.num_hidden_layers * one_way * (3 if training else 1))
