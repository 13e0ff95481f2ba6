"""The cost of a trial: its time and memory, and the machine and versions on which it ran."""

import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.errors import TrialTimeoutError
from tune_sentcl.store.rows import library_versions

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_SPENT = (
    "wall_seconds",
    "startup_seconds",
    "evaluation_seconds",
    "gpu_seconds",
    "saving_seconds",
)


class Account:
    """The resources of a trial, and its cost since this object was created."""

    def __init__(
        self,
        device: str = "cpu",
        cpus: int = 1,
        gpus: float = 0.0,
        seconds: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start the clock.

        Args:
            device: The device to compute on.
            cpus: Threads of torch. Only with the same number of threads does a trial repeat
                exactly.
            gpus: Share of a GPU that is charged to the trial.
            seconds: The trial's time limit, counted from now; None: no limit.
            clock: Returns the current time in seconds.
        """
        self._seconds, self._clock = seconds, clock
        self.device, self.cpus, self.gpus = device, cpus, gpus
        self.evaluation_seconds = 0.0
        self.steps = 0
        self.precision_used: str | None = None
        self.saving_seconds = 0.0
        self.notes: list[str] = []
        self._startup: float | None = None
        self._first_seen: tuple[int, int, float] | None = None
        self._before = dict.fromkeys(_SPENT, 0.0)
        self._started_at = datetime.now(UTC)
        self._start = clock()
        self._on_gpu = device.startswith("cuda") and torch.cuda.is_available()
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
        else:
            # Linux can reset the peak. On other systems, the peak is that of the process instead
            # of the trial's.
            with suppress(OSError):
                _CLEAR_REFS.write_text("5")

    def resume(self, spent: Mapping[str, float]) -> None:
        """Add the cost of an earlier attempt up to its saved state."""
        self._before = {name: spent.get(name, 0.0) for name in _SPENT}

    def begin_training(self) -> None:
        """Count the time so far as start-up; call it when everything is loaded."""
        self._startup = self._busy()

    def count(self, steps: int) -> None:
        """Note the number of steps so far.

        The first step of a process also imports modules, tokenizes and sets up kernels. The time
        by which it exceeds a later step counts as start-up.
        """
        if self._first_seen is None:
            self._first_seen = steps, steps - self.steps, self._busy()
        elif self._startup is not None and steps > (first := self._first_seen)[0]:
            a_step = (self._busy() - first[2]) / (steps - first[0])
            self._startup = max(self._startup, first[2] - a_step * first[1])
            self._first_seen = sys.maxsize, 0, 0.0
        self.steps = steps

    def _busy(self) -> float:
        """Seconds of this attempt so far, without evaluation and saving."""
        spent = self.evaluation_seconds + self.saving_seconds
        return self._clock() - self._start - spent

    def spent(self) -> dict[str, float]:
        """Seconds so far, including those of an earlier attempt up to its saved state."""
        wall = self._clock() - self._start
        now = {
            "wall_seconds": wall,
            "startup_seconds": self._busy() if self._startup is None else self._startup,
            "evaluation_seconds": self.evaluation_seconds,
            "gpu_seconds": wall * self.gpus,
            "saving_seconds": self.saving_seconds,
        }
        return {name: self._before[name] + value for name, value in now.items()}

    def check_time(self) -> None:
        """Raise TrialTimeoutError if the time limit has passed."""
        if self._seconds is not None and self._clock() - self._start > self._seconds:
            raise TrialTimeoutError(
                f"the trial reached its time limit of {self._seconds:g} s at step {self.steps}"
            )

    def run_columns(self) -> dict[str, Any]:
        """The cost so far, under the names of the trials table's columns."""
        spent = self.spent()
        return {
            "started_at": self._started_at,
            "steps": self.steps,
            **spent,
            # The sum of the parts may be rounded above the whole.
            "train_seconds": max(
                0.0,
                spent["wall_seconds"] - spent["evaluation_seconds"] - spent["startup_seconds"],
            ),
            "peak_memory_bytes": self._peak_memory(),
            "device": self._device_name(),
            "precision_used": self.precision_used,
            "host": socket.gethostname(),
            "cpus": self.cpus,
            "gpus": self.gpus,
            "versions": dict(library_versions()),
        }

    def _device_name(self) -> str:
        if self._on_gpu:
            return f"cuda ({torch.cuda.get_device_name(self.device)})"
        return f"{self.device} ({platform.machine()})"

    def _peak_memory(self) -> int | None:
        if self._on_gpu:
            return torch.cuda.max_memory_allocated(self.device)
        with suppress(OSError):
            for line in _STATUS.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        try:
            import resource
        except ImportError:
            # Windows has no module `resource`.
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if platform.system() == "Darwin" else peak * 1024
