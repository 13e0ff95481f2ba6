"""Limits that end a search early: failures in a row, wall time, GPU hours."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tune_sentcl.history import Status


@dataclass
class Limits:
    """The limits of one run of a search. A limit that was reached stays reached.

    Attributes:
        max_failures: Trials that may fail in a row with the same type of error. A finished or
            stopped trial starts the count anew. A lost worker and a trial's own timeout do not
            count.
        max_seconds: Seconds from now on; None: no limit.
        max_gpu_seconds: GPU seconds of all trials, running ones included; None: no limit.
        trial_seconds: Seconds of each trial; None: no limit.
        clock: Returns the time in seconds.
        failure_reason: The reason, after too many failures in a row.
    """

    max_failures: int = 5
    max_seconds: float | None = None
    max_gpu_seconds: float | None = None
    trial_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    failure_reason: str | None = field(default=None, init=False)
    _limit_reason: str | None = field(default=None, init=False)
    _failures_in_a_row: tuple[str, int] = field(default=("", 0), init=False)
    _running: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _gpu_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._start = self._charged_until = self.clock()

    def started(self, trial_id: str, gpus: float) -> None:
        """Start to charge a trial for its share of a GPU."""
        self._charge_gpus()
        self._running[trial_id] = (self.clock(), gpus)  # its start and its share of a GPU

    def ended(self, trial_id: str) -> None:
        """Stop charging a trial."""
        self._charge_gpus()
        self._running.pop(trial_id, None)

    def is_running(self, trial_id: str) -> bool:
        """Whether a trial has begun and not ended."""
        return trial_id in self._running

    def overdue(self, trial_id: str) -> bool:
        """Whether a running trial has exceeded its own time."""
        if self.trial_seconds is None or trial_id not in self._running:
            return False
        start, _ = self._running[trial_id]
        return self.clock() - start > self.trial_seconds

    def result(self, status: Status, error_type: str | None) -> None:
        """Count the failures in a row; call it for a trial's own result, not for a lost worker."""
        before, count = self._failures_in_a_row
        count = 0 if status != "failed" else count + 1 if error_type == before else 1
        self._failures_in_a_row = (str(error_type), count)
        if count >= self.max_failures:
            self.failure_reason = f"{count} trials in a row failed with {error_type}"

    def reset_failures(self) -> None:
        """Reset the count of failures, so that a confirmation can run after them."""
        self._failures_in_a_row, self.failure_reason = ("", 0), None

    def stop_reason(self) -> str | None:
        """The limit that ends the search now; None while it may go on."""
        if self.failure_reason is not None:
            return self.failure_reason
        if self._limit_reason is None and self.seconds_left() <= 0:
            self._limit_reason = "the GPU hours of --max-gpu-hours are used up"
            if self._time_left() <= 0:
                self._limit_reason = "the time of --max-time is over"
        return self._limit_reason

    def seconds_left(self) -> float:
        """Seconds until a limit is reached with the GPUs in use now; infinite without a limit."""
        if self.max_gpu_seconds is None:
            return self._time_left()
        self._charge_gpus()
        gpus_in_use, left = self._gpus_in_use(), self.max_gpu_seconds - self._gpu_seconds
        unused = math.inf if left > 0 else 0.0
        return min(self._time_left(), left / gpus_in_use if gpus_in_use else unused)

    def _gpus_in_use(self) -> float:
        return sum(gpus for _, gpus in self._running.values())

    def _charge_gpus(self) -> None:
        """Charge the GPUs in use since the last call."""
        now = self.clock()
        self._gpu_seconds += self._gpus_in_use() * (now - self._charged_until)
        self._charged_until = now

    def _time_left(self) -> float:
        if self.max_seconds is None:
            return math.inf
        return self.max_seconds - (self.clock() - self._start)
