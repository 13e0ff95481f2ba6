"""The arithmetic of matrix products on a GPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch

Arithmetic = Literal["fp32", "tf32", "bf16"]
"""How a training computes its matrix products."""


@contextmanager
def tensor_cores(device: torch.device, *, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for single-precision matrix products; TF32 rounds inputs to 10 bits.

    The setting belongs to the process. This function restores the value that it found, which may
    allow TF32: NVIDIA's containers set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE.

    Args:
        device: The device of the products; only NVIDIA GPUs have TF32.
        allowed: Whether to allow it. A backward pass must run inside this block, too.
    """
    if device.type != "cuda":
        yield
        return
    before, change, names = _setting()
    change(names[allowed])
    try:
        yield
    finally:
        change(before)


def matmul_precision() -> str:
    """Torch's name of the precision of single-precision matrix products, such as `highest`."""
    return _setting()[0]


def _setting() -> tuple[str, Callable[[str], None], tuple[str, str]]:
    """This process's precision, a function that sets it, and its names without and with TF32."""
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        # torch refuses this call once someone has set `fp32_precision`.
        matmul: Any = torch.backends.cuda.matmul
        return matmul.fp32_precision, partial(setattr, matmul, "fp32_precision"), ("ieee", "tf32")
    return older, torch.set_float32_matmul_precision, ("highest", "high")
