"""Copies to a device, and the device's memory."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from tune_sentcl.errors import CaptureError

# Only torch's CUDA allocator raises OutOfMemoryError. If the CPU's allocator, cuBLAS, cuDNN or
# CUDA itself lacks memory, the error is known by one of these texts.
_NO_MEMORY = (
    "DefaultCPUAllocator",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)


PINNING = threading.RLock()
"""A lock held while memory is pinned, which another thread's CUDA graph capture forbids."""

# Bytes that CUDA and its libraries take in each process; torch does not count them.
_CONTEXT = 2**29
# The share of GPU memory that this process may use; torch before 2.7 has no function that returns
# it.
_allowed = 1.0


@contextmanager
def without_gc() -> Iterator[None]:
    """Pause Python's cyclic garbage collector for the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to a device.

    The copy to a GPU starts from pinned memory, so it overlaps with other work. On a CPU the
    tensor shares the array's memory, so do not change the array afterwards.
    """
    return pinned(array, device).to(device, non_blocking=True)


def pinned(array: np.ndarray, device: torch.device) -> Tensor:
    """A host tensor from which a copy to the device is asynchronous; see `to_device`."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor
    with PINNING:
        return tensor.pin_memory()


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a GPU's or this process's memory has run out.

    A system that overcommits memory kills the process instead. A CaptureError does not count, even
    if memory was its cause, because its process can only be replaced.
    """
    if isinstance(error, CaptureError):
        return False
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
    )


@contextmanager
def deterministic(*, wanted: bool) -> Iterator[None]:
    """Make torch use only deterministic algorithms if wanted; else leave its setting unchanged."""
    if not wanted:
        yield
        return
    # Without this variable, torch refuses deterministic matrix products; cuBLAS reads it at its
    # first use.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


def limit_memory(share: float) -> None:
    """Limit this process to a share of its GPU's memory, including the CUDA context."""
    global _allowed
    total = torch.cuda.get_device_properties(0).total_memory
    _allowed = max(share - _CONTEXT / total, share / 2)
    torch.cuda.set_per_process_memory_fraction(_allowed)


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on a GPU."""
    free, total = torch.cuda.mem_get_info(device)
    used = torch.cuda.memory_allocated(device)
    return min(free + torch.cuda.memory_reserved(device), int(_allowed * total)) - used


def has_bf16(device: torch.device) -> bool:
    """Whether a device is an NVIDIA GPU with bfloat16 and TF32, which all have since Ampere."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 8
