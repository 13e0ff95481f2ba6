"""The arithmetic of matrix products on a GPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch

Arithmetic = Literal["fp32", "tf32", "bf16"]
"""The arithmetic of a training's matrix products."""


@contextmanager
def tensor_cores(device: torch.device, *, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for single-precision matrix products; it rounds inputs to 10 bits.

    The setting belongs to the process and is restored afterwards. Its first value is not always
    to forbid it: NVIDIA's containers allow it by TORCH_ALLOW_TF32_CUBLAS_OVERRIDE.

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
    """The name of what single-precision matrix products compute in now, by torch's setting."""
    return _setting()[0]


def _setting() -> tuple[str, Callable[[str], None], tuple[str, str]]:
    """The precision of this process, how to change it, and the names without and with TF32."""
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:  # the process has set the newer `fp32_precision`, and may set only that
        matmul: Any = torch.backends.cuda.matmul
        return matmul.fp32_precision, partial(setattr, matmul, "fp32_precision"), ("ieee", "tf32")
    return older, torch.set_float32_matmul_precision, ("highest", "high")
