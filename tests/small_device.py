"""A stand-in for a device with little memory; only tests marked `gpu` fill a real one's."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from tune_sentcl.model.encoder import Encoder

TOLD = "CUDA out of memory (a stand-in)"
CPU_TOLD = "[enforce fail] DefaultCPUAllocator: can't allocate memory"
CUBLAS_TOLD = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


class SmallDevice:
    """No layer may see more than so many rows; torch calls this behind every layer.

    Attributes:
        most: How many.
        training: Whether that is so in training, or in evaluation.
        told: The text of an error that torch has no class for; None: of the class that it has.
        refused: How often there were more.
        left: Whether what a refused pass had computed was still there when the next one began.
    """

    def __init__(
        self, most: int, last: int | None = None, *, training: bool = True, told: str | None = None
    ) -> None:
        self.most, self._last, self.training, self.told = most, last, training, told
        self.refused = 0
        self.left = False
        self._computed: list[weakref.ref[Tensor]] = []
        self._fresh = True

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        if module.training != self.training or not isinstance(module, nn.Linear):
            return
        if self._fresh:
            self.left |= any(output() is not None for output in self._computed)
            self._computed, self._fresh = [], False
        self._computed.append(weakref.ref(output))
        if output.shape[0] > self.most and self._last in (None, module.out_features):
            self.refused += 1
            self._fresh = True
            raise RuntimeError(self.told) if self.told else torch.OutOfMemoryError(TOLD)


@contextmanager
def small_device(
    most: int, last: int | None = None, *, training: bool = True, told: str | None = None
) -> Iterator[SmallDevice]:
    """Run out of memory in this process.

    Args:
        most: Rows that fit.
        last: Only a layer of this width runs out, such as the last one; None: any.
        training: Whether in training, or in evaluation.
        told: The error's text, if torch has no class for it.
    """
    device = SmallDevice(most, last, training=training, told=told)
    handle = register_module_forward_hook(device)
    try:
        with pytest.MonkeyPatch.context() as patch:
            _pad(patch)
            yield device
    finally:
        handle.remove()


def _pad(patch: pytest.MonkeyPatch) -> None:
    """Have all encoders pad: only a padded batch's states tell by their shape how many rows."""
    patch.setattr(Encoder, "packs", False)
