"""What says that a step does not fit the memory."""

import torch


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that memory has run out: a GPU's, or what this process may have.

    On a CPU torch has no error of its own for that; and where the system promises more than it
    has, it ends the process instead.
    """
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
