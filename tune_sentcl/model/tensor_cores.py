"""TF32 on a GPU for an encoder's forward pass without gradient, and for nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def tensor_cores(device: torch.device, *, allowed: bool) -> Iterator[None]:
    """Let matrix products in single precision round their inputs to TF32's 10 bits.

    The setting is the process's, so it is put back: correlations and classifiers compute in full
    precision.

    Args:
        device: Where the products are taken; only GPUs of NVIDIA know TF32.
        allowed: Whether they may; not in training, whose backward pass would not be covered.
    """
    if not allowed or device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
