"""When a search ends before its trials do: failures in a row, time, GPU hours."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tune_sentcl.history import Status


@dataclass(frozen=True)
class _Under:
    """A trial under way: since when, and on which share of a GPU."""

    start: float
    gpus: float


@dataclass
class Budget:
    """What one run of a search may take. Once it is spent, it stays so.

    Attributes:
        max_failures: Trials that may fail in a row with the same type of error, none finished
            between them; one that was lost with its worker, or ran out of its own time, is none.
        max_seconds: From now on; None: no end.
        max_gpu_seconds: Of all trials together, those under way included; None: no end.
        trial_seconds: Of each trial; None: as long as it takes.
        clock: Gives seconds.
        gave_up: Why, if too many failed in a row.
    """

    max_failures: int = 5
    max_seconds: float | None = None
    max_gpu_seconds: float | None = None
    trial_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    gave_up: str | None = field(default=None, init=False)
    _spent: str | None = field(default=None, init=False)
    _row: tuple[str, int] = field(default=("", 0), init=False)
    _running: dict[str, _Under] = field(default_factory=dict, init=False)
    _gpu_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._start = self._counted = self.clock()

    def started(self, trial_id: str, gpus: float) -> None:
        """A trial begins to compute on a share of a GPU."""
        self._count()
        self._running[trial_id] = _Under(self.clock(), gpus)

    def ended(self, trial_id: str) -> None:
        """A trial is over, whatever became of it."""
        self._count()
        self._running.pop(trial_id, None)

    def runs(self, trial_id: str) -> bool:
        """Whether a trial has begun and not ended."""
        return trial_id in self._running

    def overdue(self, trial_id: str) -> bool:
        """Whether a trial that has not ended is beyond its own time."""
        if self.trial_seconds is None or trial_id not in self._running:
            return False
        return self.clock() - self._running[trial_id].start > self.trial_seconds

    def result(self, status: Status, error_type: str | None) -> None:
        """A trial has come to a result of its own: count it in the row."""
        if status == "finished":
            self._row = ("", 0)
        elif status == "failed":
            before, count = self._row
            self._row = (str(error_type), count + 1 if error_type == before else 1)
            if self._row[1] >= self.max_failures:
                count = self._row[1]
                self.gave_up = f"{count} trials in a row failed with {error_type} (max_failures)"

    def forgive(self) -> None:
        """Failures so far no longer count, nor do they end what comes next."""
        self._row, self.gave_up = ("", 0), None

    def spent(self) -> str | None:
        """Why the search has to end now; None while it may go on."""
        if self.gave_up is not None:
            return self.gave_up
        if self._spent is None and self.seconds_left() <= 0:
            out_of_time = self._time_left() <= 0
            self._spent = (
                "the time of --max-time is over"
                if out_of_time
                else "the GPU hours of --max-gpu-hours are used up"
            )
        return self._spent

    def seconds_left(self) -> float:
        """How long what runs now may go on, at the present use of GPUs; infinite if for ever."""
        if self.max_gpu_seconds is None:
            return self._time_left()
        self._count()
        using, left = self._using(), self.max_gpu_seconds - self._gpu_seconds
        lasting = left / using if using else (float("inf") if left > 0 else 0.0)
        return min(self._time_left(), lasting)

    def _using(self) -> float:
        """GPUs in use."""
        return sum(run.gpus for run in self._running.values())

    def _count(self) -> None:
        """Charge the GPUs in use up to now."""
        now = self.clock()
        self._gpu_seconds += self._using() * (now - self._counted)
        self._counted = now

    def _time_left(self) -> float:
        if self.max_seconds is None:
            return float("inf")
        return self.max_seconds - (self.clock() - self._start)
