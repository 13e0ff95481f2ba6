"""Send the trials of a search to trackers: `search --track NAME`.

Each tracker runs in a thread of its own, so a client that hangs or fails does not delay the
search.
"""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from tune_sentcl.config import flatten
from tune_sentcl.errors import first_line
from tune_sentcl.history import Assignment
from tune_sentcl.objective import MAX_OBJECTIVES, value_columns
from tune_sentcl.plugins import EXTENSIONS
from tune_sentcl.score import Score
from tune_sentcl.signals import hanging
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.rows import RUN_COLUMNS, TrialRow
from tune_sentcl.trial import Progress
from tune_sentcl.watch.trackers import open_tracker
from tune_sentcl.watch.watcher import Watcher

_WAIT_S = 30.0  # seconds that trackers may take to finish after the search
_INTERRUPTED_WAIT_S = 3.0  # seconds that they may take after an interruption
_COSTS = tuple(name for name in RUN_COLUMNS if name.endswith(("_seconds", "_bytes")))
_NUMBERS = value_columns(MAX_OBJECTIVES)
_TEXTS = ("status", "origin", "host", "device", "notes", "error_type", "error_text", "git_commit")
Event = tuple[str, tuple[Any, ...]]
"""The name of a method of `Tracker`, and its arguments."""
_SCORE = ("task", "split", "metric", "aggregation", "protocol", "classifier_seed")


@contextmanager
def tracking(names: Sequence[str], study: str, space: str, watcher: Watcher) -> Iterator[Watcher]:
    """Send a search's events to trackers; after the block, wait for them to finish writing.

    Args:
        names: The trackers, which have passed `check_tracking`.
        study: The path or URL of the study.
        space: The name of the search space.
        watcher: Also receives all events, and a message if a tracker fails or hangs.

    Yields:
        The watcher for the session.
    """
    if not names:
        yield watcher
        return
    threads = [_TrackerThread(n, study, space, watcher.say) for n in dict.fromkeys(names)]
    tracked, wait_s = TrackingWatcher(watcher, threads), _INTERRUPTED_WAIT_S
    try:
        yield tracked
        wait_s = _WAIT_S
    finally:
        end = time.monotonic() + wait_s  # all trackers share this deadline
        tracked.close()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                thread.lose(f"had not finished {wait_s:g} s after the search")
                hanging.append(thread)


class TrackingWatcher:
    """A `Watcher` that passes events on to another watcher, and trainings to the trackers."""

    def __init__(self, watcher: Watcher, threads: Sequence["_TrackerThread"]) -> None:
        self._watcher, self._threads = watcher, threads
        self.begin, self.say = watcher.begin, watcher.say
        # The last step that was sent, for each running trial.
        self._last_steps: dict[str, int] = {}

    def started(self, assignment: Assignment) -> None:
        """See `Watcher`."""
        self._watcher.started(assignment)
        name = assignment.trial_id
        if assignment.action == "measure" or name in self._last_steps:
            # A measurement has no run for its scores. A trial that starts again already has its
            # run.
            return
        self._last_steps[name] = -1
        params = {
            key: value if isinstance(value, str | int | float | bool) else str(value)
            for key, value in flatten(assignment.config.nested())
            if value is not None
        }
        self._send("begin", name, assignment.configuration, params)

    def point(self, trial_id: str, progress: Progress) -> None:
        """See `Watcher`."""
        self._watcher.point(trial_id, progress)
        self._log(trial_id, progress)

    def ended(self, row: TrialRow, total: int, last: Progress | None) -> None:
        """See `Watcher`."""
        self._watcher.ended(row, total, last)
        if row.trial_id not in self._last_steps:
            return
        columns, values = row.values(), {}
        if last is not None:
            self._log(row.trial_id, last)
            values = {_score_name(s): s.value for s in last.scores if s.subset is None}
        values |= {name: columns.get(name) for name in _NUMBERS}
        values |= {f"cost/{name}": columns[name] for name in _COSTS}
        numbers = {name: value for name, value in values.items() if value is not None}
        texts = {name: str(columns[name]) for name in _TEXTS if columns[name] is not None}
        step = max(row.steps or 0, self._last_steps.pop(row.trial_id))
        self._send("end", row.trial_id, step, numbers, texts)

    def close(self) -> None:
        """End the runs of trials that have not ended, then the tracking."""
        for trial_id, step in self._last_steps.items():
            self._send("end", trial_id, step, {}, {"status": "interrupted"})
        for thread in self._threads:
            thread.send(None)

    def _log(self, trial_id: str, progress: Progress) -> None:
        if trial_id not in self._last_steps:
            return
        points: dict[int, dict[str, float]] = defaultdict(dict)
        for point in progress.curves:
            if point.step > self._last_steps[trial_id]:
                points[point.step]["samples"] = point.samples
                if point.value is not None:
                    points[point.step][point.metric] = point.value
        for step in sorted(points):
            self._send("point", trial_id, step, points[step])
            self._last_steps[trial_id] = step

    def _send(self, method: str, *args: Any) -> None:
        for thread in self._threads:
            thread.send((method, args))


def _score_name(score: Score) -> str:
    parts = (getattr(score, name) for name in _SCORE)
    return "score/" + ".".join(str(part) for part in parts if part is not None)


class _TrackerThread(threading.Thread):
    """Calls a tracker with each event; None ends it. A tracker that fails or hangs is lost."""

    def __init__(self, name: str, study: str, space: str, say: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._files, self._space, self._say = StudyFiles.at(study), space, say
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._is_lost = False
        self.start()

    def send(self, event: Event | None) -> None:
        if not self._is_lost:
            self._events.put(event)

    def lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._say(f"{self.name} {reason}; no further trials are tracked")

    def run(self) -> None:
        try:
            folder = self._files.folder or Path(gettempdir())
            tracker = open_tracker(self.name, self._space, self._files.where, folder)
            while (event := self._events.get()) is not None and not self._is_lost:
                method, args = event
                getattr(tracker, method)(*args)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the search runs on
            reason = first_line(str(error)) or "no message"
            if own := EXTENSIONS.get(("watcher", self.name)):
                reason += f", {own.plugin}, line {own.line(error)}"
            self.lose(f"failed ({type(error).__name__}: {reason})")
