"""Copies to a device, and TF32 for forward passes without gradient."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device.

    The copy to a GPU starts from pinned memory, so that it overlaps with other work. On a CPU the
    tensor shares the array's memory, so do not change the array afterwards.
    """
    return pinned(array, device).to(device, non_blocking=True)


def pinned(array: np.ndarray, device: torch.device) -> Tensor:
    """The first half of `to_device`, on the host alone: a tensor that is ready to be copied."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory() if device.type == "cuda" else tensor


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def tensor_cores(device: torch.device, *, allowed: bool) -> Iterator[None]:
    """Allow TF32 for single-precision matrix products, which rounds their inputs to 10 bits.

    The setting belongs to the process and is restored afterwards, because correlations and
    classifiers compute in full precision.

    Args:
        device: The device of the products; only NVIDIA GPUs have TF32.
        allowed: Whether to allow it. Not in training, whose backward pass runs outside this block.
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
