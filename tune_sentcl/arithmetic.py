"""The arithmetic of matrix products on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

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
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
