"""From the host's memory to a device's, without waiting for what it is at; and waiting for it."""

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
