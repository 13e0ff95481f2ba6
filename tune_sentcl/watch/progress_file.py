"""Write `progress.json`, from which other processes show the state of a search."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from tune_sentcl.errors import StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.manifest import now
from tune_sentcl.store.progress import RunningTrial, SearchProgress, State
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.store.writer_lock import Holder
from tune_sentcl.trial import Progress
from tune_sentcl.watch.watcher import Watcher

# Seconds between two writes, so that many short trials that end together cause only one.
_DISK_S, _STORE_S = 0.5, 10.0


class ProgressFileWatcher:
    """A `Watcher` that writes the state of the search, and passes events on to another watcher."""

    def __init__(self, watcher: Watcher, driver: StudyDriver) -> None:
        self._watcher, self._driver = watcher, driver
        files = driver.study.files
        driving = Holder.of_this_process(files.where)
        self._progress = SearchProgress("running", now(), driver=driving)
        self._running: dict[str, RunningTrial] = {}
        self._start = time.monotonic()
        self._seconds_between = _DISK_S if files.folder else _STORE_S
        self._wrote = -math.inf
        self._lock = threading.Lock()
        self._later: threading.Timer | None = None

    def begin(self, done: int, total: int) -> None:
        """See `Watcher`."""
        self._watcher.begin(done, total)
        self._update(done=done, total=total)

    def started(self, assignment: Assignment) -> None:
        """See `Watcher`."""
        self._watcher.started(assignment)
        self._running[assignment.trial_id] = RunningTrial(assignment.trial_id, now())
        self._update()

    def point(self, trial_id: str, progress: Progress) -> None:
        """See `Watcher`."""
        self._watcher.point(trial_id, progress)
        trial = self._running.get(trial_id) or RunningTrial(trial_id, now())
        self._running[trial_id] = replace(
            trial, step=progress.step, steps=progress.total, dev=progress.dev
        )
        self._update()

    def ended(self, row: TrialRow, total: int, last: Progress | None) -> None:
        """See `Watcher`."""
        self._watcher.ended(row, total, last)
        self._running.pop(row.trial_id, None)
        self._update(done=self._progress.done + 1, total=total, ended=self._progress.ended + 1)

    def say(self, text: str) -> None:
        """See `Watcher`."""
        self._watcher.say(text)

    def end(self, state: State) -> None:
        """Write the final state and stop the timer."""
        if (later := self._later) is not None:
            later.cancel()
            later.join()
        self._running.clear()
        self._note(state=state)
        self._write()

    def _update(self, **changes: object) -> None:
        self._note(**changes)
        if self._later is None:
            wait = self._wrote + self._seconds_between - time.monotonic()
            self._later = threading.Timer(max(0.0, wait), self._write)
            self._later.daemon = True
            self._later.start()

    def _note(self, **changes: object) -> None:
        seconds = round(time.monotonic() - self._start, 1)
        running = tuple(self._running.values())
        self._progress = replace(self._progress, seconds=seconds, running=running, **changes)  # type: ignore[arg-type]

    def _write(self) -> None:
        # The file is for display only, so an error in writing it does not end the search. A driver
        # that has lost its study must not write.
        with self._lock, suppress(StudyError):
            self._later = None
            self._wrote = time.monotonic()
            self._driver.write_progress(self._progress)


@contextmanager
def progress_file(watcher: Watcher, driver: StudyDriver) -> Iterator[Watcher]:
    """Write the state of a search until the block ends.

    Args:
        watcher: Also receives all events.
        driver: The driver of the study.

    Yields:
        The watcher for the session.
    """
    file_watcher = ProgressFileWatcher(watcher, driver)
    state: State = "interrupted"
    try:
        yield file_watcher
        state = "ended"
    finally:
        file_watcher.end(state)
