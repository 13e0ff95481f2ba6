"""Sends the trials of a search to trackers: `search --track NAME`.

Each tracker runs in a thread of its own. The search does not wait for a client that hangs, and
does not fail by one that fails.
"""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

from tune_sentcl.config import TrialConfig, flatten
from tune_sentcl.errors import first_line
from tune_sentcl.history import Assignment
from tune_sentcl.objective import MAX_OBJECTIVES, value_columns
from tune_sentcl.score import Score
from tune_sentcl.signals import shutdown_signals
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.rows import RUN_COLUMNS, TrialRow
from tune_sentcl.trial import Progress
from tune_sentcl.watch.trackers import TRACKERS, TrialBegin, TrialEnd, TrialPoint
from tune_sentcl.watch.watcher import Watcher

_WAIT_S = 30.0  # for the trackers to finish writing after the search
_INTERRUPTED_WAIT_S = 3.0  # the same after an interruption, which may take 7 s in total
_MAX_BEHIND = 10_000  # events that wait for a tracker
_COSTS = tuple(name for name in RUN_COLUMNS if name.endswith(("_seconds", "_bytes")))
_NUMBERS = value_columns(MAX_OBJECTIVES)
_TEXTS = ("status", "origin", "host", "device", "notes", "error_type", "error_text", "git_commit")
Event = TrialBegin | TrialPoint | TrialEnd
_SCORE = ("task", "split", "metric", "aggregation", "protocol", "classifier_seed")


@contextmanager
def tracking(names: Sequence[str], study: str, space: str, watcher: Watcher) -> Iterator[Watcher]:
    """Send a search's events to trackers; after the block, wait for them to finish writing.

    Args:
        names: The trackers, which have passed `check_tracking`.
        study: The path or URL of the study.
        space: The name of its space.
        watcher: Receives all events too, and a message if a tracker fails or hangs.

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
        end = time.monotonic() + wait_s  # one deadline for all trackers
        tracked.close()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                thread.lose(f"had not finished {wait_s:g} s after the search")
                shutdown_signals.limit_exit()


class TrackingWatcher:
    """A `Watcher` that passes events on to another one, and trainings to the trackers."""

    def __init__(self, watcher: Watcher, threads: Sequence["_TrackerThread"]) -> None:
        self._watcher, self._threads = watcher, threads
        self.begin, self.planned, self.say = watcher.begin, watcher.planned, watcher.say
        self._last_steps: dict[str, int] = {}  # the last step that was sent of a running trial
        self._measured: set[str] = set()  # these have no run that their scores could join

    def started(self, assignment: Assignment) -> None:
        """See `Watcher`."""
        self._watcher.started(assignment)
        if assignment.action == "measure":
            self._measured.add(assignment.trial_id)
        else:
            self._begin(assignment.trial_id, assignment.configuration, assignment.config)

    def point(self, trial_id: str, progress: Progress) -> None:
        """See `Watcher`."""
        self._watcher.point(trial_id, progress)
        self._log(trial_id, progress)

    def ended(self, row: TrialRow, total: int, last: Progress | None) -> None:
        """See `Watcher`."""
        self._watcher.ended(row, total, last)
        if row.trial_id in self._measured:
            self._measured.discard(row.trial_id)
            return
        self._begin(row.trial_id, row.configuration, row.config)
        found, values = row.values(), {}
        if last is not None:
            self._log(row.trial_id, last)
            values = {_score_name(s): s.value for s in last.scores if s.subset is None}
        values |= {name: found.get(name) for name in _NUMBERS}
        values |= {f"cost/{name}": found[name] for name in _COSTS}
        numbers = {name: value for name, value in values.items() if value is not None}
        texts = {name: str(found[name]) for name in _TEXTS if found[name] is not None}
        step = max(row.steps or 0, self._last_steps.pop(row.trial_id))
        self._send(TrialEnd(row.trial_id, step, numbers, texts))

    def close(self) -> None:
        """End the tracking, and the runs of trials that have not ended."""
        for trial_id, step in self._last_steps.items():
            self._send(TrialEnd(trial_id, step, {}, {"status": "interrupted"}))
        self._send(None)

    def _begin(self, trial_id: str, configuration: str, config: TrialConfig) -> None:
        if trial_id in self._last_steps:  # a further attempt, which repeats the same points
            return
        self._last_steps[trial_id] = -1
        params = {
            key: value if isinstance(value, str | int | float | bool) else str(value)
            for key, value in flatten(config.nested())
            if value is not None
        }
        self._send(TrialBegin(trial_id, configuration, params))

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
            self._send(TrialPoint(trial_id, step, points[step]))
            self._last_steps[trial_id] = step

    def _send(self, event: Event | None) -> None:
        for thread in self._threads:
            thread.send(event)


def _score_name(score: Score) -> str:
    found = (getattr(score, name) for name in _SCORE)
    return "score/" + ".".join(str(value) for value in found if value is not None)


class _TrackerThread(threading.Thread):
    """Calls a tracker, event by event; None ends it. It is lost once it fails, or is too slow."""

    def __init__(self, name: str, study: str, space: str, say: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._files, self._space, self._say = StudyFiles.at(study), space, say
        self._events: queue.Queue[Event | None] = queue.Queue(_MAX_BEHIND)
        self._is_lost = False
        self.start()

    def send(self, event: Event | None) -> None:
        if self._is_lost:
            return
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self.lose(f"is {_MAX_BEHIND:,} events behind")

    def lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._say(f"{self.name} {reason}: it tracks no further trials")

    def run(self) -> None:
        try:
            folder = self._files.folder or Path(gettempdir())
            tracker = TRACKERS[self.name](self._space, self._files.where, folder)
            while (event := self._events.get()) is not None and not self._is_lost:
                match event:
                    case TrialBegin():
                        tracker.begin(event)
                    case TrialPoint():
                        tracker.point(event)
                    case TrialEnd():
                        tracker.end(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the search goes on without it
            reason = first_line(str(error)) or "no message"
            self.lose(f"failed ({type(error).__name__}: {reason})")
