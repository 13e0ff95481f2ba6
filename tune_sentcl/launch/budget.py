"""When a search ends before its trials do: failures in a row, time, GPU hours."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tune_sentcl.history import Status


@dataclass(frozen=True)
class _Under:
    """A trial under way: since when, on which share of a GPU, with whom."""

    start: float
    gpus: float
    worker: tuple[str, ...]


@dataclass
class Budget:
    """What one run of a search may take. Once it is spent, it stays so.

    Attributes:
        max_failures: Trials that may fail in a row with the same type of error, none finished
            between them; one that was lost with its worker, or ran out of its own time, is none.
            The trials of a worker count once all have ended, in the order in which it got them.
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
    _results: dict[str, tuple[Status, str | None]] = field(default_factory=dict, init=False)
    _gpu_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._start = self._counted = self.clock()

    def started(self, trial_id: str, gpus: float, beside: Sequence[str] = ()) -> None:
        """A trial begins to compute on a share of a GPU.

        Args:
            trial_id: The trial.
            gpus: The share.
            beside: The trials of its worker, which have that share together; they are given the
                time of all of them.
        """
        self._count()
        worker = tuple(beside) or (trial_id,)
        self._running[trial_id] = _Under(self.clock(), gpus, worker)

    def ended(self, trial_id: str) -> None:
        """A trial is over, whatever became of it; its result, if it has one, has been told."""
        self._count()
        run = self._running.pop(trial_id, None)
        hand = (trial_id,) if run is None else run.worker
        if not any(name in self._running for name in hand):
            for name in hand:
                if name in self._results:
                    self._follow(*self._results.pop(name))

    def runs(self, trial_id: str) -> bool:
        """Whether a trial has begun and not ended."""
        return trial_id in self._running

    def overdue(self, trial_id: str) -> bool:
        """Whether a trial that has not ended is beyond its own time."""
        if self.trial_seconds is None or trial_id not in self._running:
            return False
        run = self._running[trial_id]
        return self.clock() - run.start > self.trial_seconds * len(run.worker)

    def shares(self, trial_id: str) -> bool:
        """Whether the worker of a trial that has not ended was given others with it."""
        run = self._running.get(trial_id)
        return run is not None and len(run.worker) > 1

    def result(self, trial_id: str, status: Status, error_type: str | None) -> None:
        """A trial has come to a result of its own, and is about to end."""
        self._results[trial_id] = status, error_type

    def _follow(self, status: Status, error_type: str | None) -> None:
        """Count the next result in the row."""
        if status == "finished":
            self._row = ("", 0)
        elif status == "failed":
            before, count = self._row
            self._row = (str(error_type), count + 1 if error_type == before else 1)
            if self._row[1] >= self.max_failures:
                count = self._row[1]
                self.gave_up = f"{count} trials in a row failed with {error_type} (--max-failures)"

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
        """GPUs in use: a worker's share counts as long as one of its trials runs."""
        return sum({run.worker: run.gpus for run in self._running.values()}.values())

    def _count(self) -> None:
        """Charge the GPUs in use up to now."""
        now = self.clock()
        self._gpu_seconds += self._using() * (now - self._counted)
        self._counted = now

    def _time_left(self) -> float:
        if self.max_seconds is None:
            return float("inf")
        return self.max_seconds - (self.clock() - self._start)
