"""What a trial cost: time, memory, and the machine and versions that it ran on."""

import platform
import resource
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.errors import TrialTimeoutError
from tune_sentcl.store.provenance import library_versions

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


class Account:
    """Where a trial computes, and what it has cost since this was made."""

    def __init__(
        self,
        device: str = "cpu",
        cpus: int = 1,
        gpus: float = 0.0,
        seconds: float | None = None,
    ) -> None:
        """Begin to count.

        Args:
            device: Where to compute.
            cpus: Threads of torch. A trial repeats to the bit at an equal number of threads.
            gpus: Share of a GPU that is charged to the trial.
            seconds: What the trial is given, from now on; None: as long as it takes.
        """
        self._seconds = seconds
        self.device, self.cpus, self.gpus = device, cpus, gpus
        self.evaluation_seconds = 0.0
        self.steps = 0
        self._started_at = datetime.now(UTC)
        self._start = time.perf_counter()
        self._on_gpu = device.startswith("cuda") and torch.cuda.is_available()
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):  # Linux; elsewhere the peak is the process's, not the trial's
                _CLEAR_REFS.write_text("5")

    def check_time(self) -> None:
        """See that the trial's time is not over.

        Raises:
            TrialTimeoutError: It is.
        """
        if self._seconds is not None and time.perf_counter() - self._start > self._seconds:
            raise TrialTimeoutError(
                f"the trial was given {self._seconds:g} s, and they were over at step {self.steps}"
            )

    def facts(self) -> dict[str, Any]:
        """The cost so far, under the names of the trials table's columns."""
        wall = time.perf_counter() - self._start
        return {
            "started_at": self._started_at,
            "steps": self.steps,
            "wall_seconds": wall,
            "train_seconds": wall - self.evaluation_seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "gpu_seconds": wall * self.gpus,
            "peak_memory_bytes": self._peak_memory(),
            "device": self._device_name(),
            "host": socket.gethostname(),
            "cpus": self.cpus,
            "gpus": self.gpus,
            "versions": dict(library_versions()),
        }

    def _device_name(self) -> str:
        if self._on_gpu:
            return f"cuda ({torch.cuda.get_device_name(self.device)})"
        return f"{self.device} ({platform.machine()})"

    def _peak_memory(self) -> int:
        if self._on_gpu:
            return torch.cuda.max_memory_allocated(self.device)
        with suppress(OSError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if platform.system() == "Darwin" else peak * 1024
