"""Sends the trials of a search to trackers: `search --track NAME`.

Each tracker runs in a thread of its own. The search does not wait for a client that hangs, and
does not fail by one that fails.
"""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from tune_sentcl.config import TrialConfig, flatten
from tune_sentcl.errors import first_line
from tune_sentcl.history import Assignment
from tune_sentcl.objective import MAX_OBJECTIVES, value_columns
from tune_sentcl.signals import shutdown_signals
from tune_sentcl.store.rows import RUN_COLUMNS, CurvePoint, TrialRow
from tune_sentcl.store.study import Study
from tune_sentcl.trial import Progress
from tune_sentcl.watch.trackers import TRACKERS, TrialBegin, TrialEnd, TrialPoint
from tune_sentcl.watch.watcher import Watcher

_WAIT_S = 60.0  # for the trackers to finish writing after the search
_INTERRUPTED_WAIT_S = 3.0  # the same after an interruption, which may take 7 s in total
_MAX_BEHIND = 10_000  # events that wait for a tracker
_COSTS = tuple(name for name in RUN_COLUMNS if name.endswith(("_seconds", "_bytes")))
_NUMBERS = value_columns(MAX_OBJECTIVES)
_TEXTS = ("status", "origin", "host", "device", "notes", "error_type", "error_text", "git_commit")
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
    wait_s = _INTERRUPTED_WAIT_S
    try:
        yield TrackingWatcher(watcher, threads)
        wait_s = _WAIT_S
    finally:
        end = time.monotonic() + wait_s  # one deadline for all trackers
        for thread in threads:
            thread.send(None)
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                thread.lose(f"had not finished {wait_s:g} s after the search")
                shutdown_signals.limit_exit()


class TrackingWatcher:
    """A `Watcher` that passes events on to another one and to the trackers."""

    def __init__(self, watcher: Watcher, threads: Sequence["_TrackerThread"]) -> None:
        self._watcher, self._threads = watcher, threads
        self.begin, self.planned, self.say = watcher.begin, watcher.planned, watcher.say

    def started(self, assignment: Assignment) -> None:
        """See `Watcher`."""
        self._watcher.started(assignment)
        self._send(assignment)

    def point(self, trial_id: str, progress: Progress) -> None:
        """See `Watcher`."""
        self._watcher.point(trial_id, progress)
        self._send((trial_id, progress.curves))

    def ended(self, row: TrialRow, total: int) -> None:
        """See `Watcher`."""
        self._watcher.ended(row, total)
        self._send(row)

    def _send(self, event: "_Event") -> None:
        for thread in self._threads:
            thread.send(event)


_Event = Assignment | tuple[str, Sequence[CurvePoint]] | TrialRow | None


class _TrackerThread(threading.Thread):
    """Makes the tracker's arguments of the session's events, with curves and scores of the study.

    None as an event ends the tracking. A tracker is lost once it fails, hangs or is too slow.
    """

    def __init__(self, name: str, study: str, space: str, say: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._where, self._space, self._say = study, space, say
        self._events: queue.Queue[_Event] = queue.Queue(_MAX_BEHIND)
        self._is_lost = False
        self._logged: dict[str, set[int]] = {}
        self.start()

    def send(self, event: _Event) -> None:
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
            self._study = Study.read(self._where)
            files = self._study.files
            tracker = TRACKERS[self.name]
            self._tracker = tracker(self._space, files.where, files.folder or Path(gettempdir()))
            while (event := self._events.get()) is not None and not self._is_lost:
                self._handle(event)
            for trial_id, steps in self._logged.items():
                texts = {"status": "interrupted"}
                self._tracker.end(TrialEnd(trial_id, max(steps, default=0), {}, texts))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the search goes on without it
            reason = first_line(str(error)) or "no message"
            self.lose(f"failed ({type(error).__name__}: {reason})")

    def _handle(self, event: Assignment | tuple[str, Sequence[CurvePoint]] | TrialRow) -> None:
        if isinstance(event, Assignment):
            self._begin(event.trial_id, event.configuration, event.config)
        elif isinstance(event, TrialRow):
            self._begin(event.trial_id, event.configuration, event.config)
            self._end(event.trial_id, event.values())
        else:
            trial_id, curves = event
            self._log(trial_id, map(vars, curves))

    def _begin(self, trial_id: str, configuration: str, config: TrialConfig) -> None:
        if trial_id in self._logged:  # a further attempt, which repeats the same points
            return
        params = {
            key: value if isinstance(value, str | int | float | bool) else str(value)
            for key, value in flatten(config.nested())
            if value is not None
        }
        self._tracker.begin(TrialBegin(trial_id, configuration, params))
        self._logged[trial_id] = set()

    def _log(self, trial_id: str, curves: Iterable[Mapping[str, Any]]) -> None:
        points: dict[int, dict[str, float]] = defaultdict(dict)
        for row in curves:
            points[row["step"]]["samples"] = row["samples"]
            if row["value"] is not None:
                points[row["step"]][row["metric"]] = row["value"]
        for step in sorted(points.keys() - self._logged[trial_id]):
            self._tracker.point(TrialPoint(trial_id, step, points[step]))
        self._logged[trial_id].update(points)

    def _end(self, trial_id: str, row: Mapping[str, Any]) -> None:
        self._log(trial_id, self._study.curves(among=[trial_id]).to_pylist())
        step = max(row["steps"] or 0, *self._logged.pop(trial_id), 0)
        values = {name: row[name] for name in _NUMBERS if row.get(name) is not None}
        scores = self._study.scores(among=[trial_id]).to_pylist()
        for score in scores if row["status"] == "finished" else ():
            if score["value"] is not None and score["subset"] is None:
                name = ".".join(str(score[key]) for key in _SCORE if score[key] is not None)
                values[f"score/{name}"] = score["value"]
        values |= {f"cost/{name}": row[name] for name in _COSTS if row[name] is not None}
        texts = {name: str(row[name]) for name in _TEXTS if row[name] is not None}
        self._tracker.end(TrialEnd(trial_id, step, values, texts))
