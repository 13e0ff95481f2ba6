"""A loader that does harm in workers alone: broken devices, hangs, other files."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import CaptureError, DeviceError
from tune_sentcl.trial import InputLoader, TrialInputs

Harm = Literal["device", "capture", "cuda assert once", "die", "die once", "hang", "other data"]


class FaultyLoader(InputLoader):
    """Harms the trials of some lambdas; each try leaves a file that names its process."""

    def __init__(self, harms: dict[float, Harm], tries: Path) -> None:
        super().__init__(None)
        self.harms, self.tries, self.driver = harms, tries, os.getpid()

    def load(self, config: TrialConfig) -> TrialInputs:
        """As a loader does, or not."""
        inputs = super().load(config)
        if os.getpid() == self.driver:
            return inputs
        knob = config.dotted()["method.lambda"]
        harm = self.harms.get(knob)
        before = list(self.tries.glob(f"{knob}-*"))
        (self.tries / f"{knob}-{len(before)}-{os.getpid()}").touch()
        if harm == "device":
            raise DeviceError("CUDA error: an illegal memory access (a stand-in)")
        if harm == "capture" and os.environ.get(CaptureError.variable) is None:
            raise CaptureError("a CUDA graph could not be captured (a stand-in)")
        if harm == "cuda assert once" and not before:
            torch.zeros(2, device="cuda")[torch.tensor([5], device="cuda")].cpu()
        if harm == "die" or (harm == "die once" and not before):
            os.kill(os.getpid(), signal.SIGKILL)
        if harm == "hang":
            time.sleep(600)
        if harm == "other data":
            return replace(inputs, fingerprints=replace(inputs.fingerprints, data="0" * 16))
        return inputs
