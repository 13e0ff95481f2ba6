"""From the host's memory to a device's, without waiting for what the device is at."""

import numpy as np
import torch
from torch import Tensor


def placed(array: np.ndarray, device: torch.device) -> Tensor:
    """An array of the host on a device.

    Args:
        array: Not changed afterwards; on a CPU the tensor shares its memory.
        device: Where it goes. Only from pinned memory does a GPU copy beside its other work.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
