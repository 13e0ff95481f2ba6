"""Copies to a device, and TF32 for forward passes without gradient."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def placed(array: np.ndarray, device: torch.device) -> Tensor:
    """An array of the host on a device.

    Args:
        array: Not changed afterwards; on a CPU the tensor shares its memory.
        device: Where it goes. Only from pinned memory does a GPU copy beside its other work.
    """
    return staged(array, device).to(device, non_blocking=True)


def staged(array: np.ndarray, device: torch.device) -> Tensor:
    """The first half of it, which takes time of the host alone: what is ready to be copied."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory() if device.type == "cuda" else tensor


def wait_for(device: torch.device) -> None:
    """Let a device do all that it has been told; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
