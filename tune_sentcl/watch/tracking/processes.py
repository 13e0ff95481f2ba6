"""The side of the driver: it starts the trackers and sends events without waiting for them."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tune_sentcl.history import Assignment
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.trial import Progress
from tune_sentcl.watch.watcher import Watcher

_WAIT_S = 60.0  # for the trackers to finish writing after the search
_INTERRUPTED_WAIT_S = 3.0  # the same after an interruption, which may take 7 s in total
_COMMAND = (sys.executable, "-m", "tune_sentcl.watch.tracking")


class TrackingWatcher:
    """A `Watcher` that passes events on to another one and to the trackers."""

    def __init__(self, watcher: Watcher, trackers: Sequence["_TrackerProcess"]) -> None:
        self._watcher, self._trackers = watcher, trackers

    def begin(self, done: int, total: int) -> None:
        """See `Watcher`."""
        self._watcher.begin(done, total)

    def started(self, assignment: Assignment) -> None:
        """See `Watcher`."""
        self._watcher.started(assignment)
        self._send(
            assignment.trial_id,
            "begun",
            configuration=assignment.configuration,
            config=assignment.config.nested(),
        )

    def planned(self, seconds: float) -> None:
        """See `Watcher`."""
        self._watcher.planned(seconds)

    def point(self, trial_id: str, progress: Progress) -> None:
        """See `Watcher`."""
        self._watcher.point(trial_id, progress)
        self._send(trial_id, "point", curves=list(map(vars, progress.curves)))

    def ended(self, row: TrialRow, total: int) -> None:
        """See `Watcher`."""
        self._watcher.ended(row, total)
        self._send(row.trial_id, "ended", row=row.values())

    def say(self, text: str) -> None:
        """See `Watcher`."""
        self._watcher.say(text)

    def _send(self, trial_id: str, did: str, **what: Any) -> None:
        line = json.dumps({"did": did, "trial": trial_id, **what}, default=str)
        for tracker in self._trackers:
            tracker.send(line)


@contextmanager
def tracking(names: Sequence[str], study: str, space: str, watcher: Watcher) -> Iterator[Watcher]:
    """Send a search's events to trackers; after the block, wait for them to finish writing.

    Args:
        names: The trackers, which have passed `check_tracking`.
        study: The path or URL of the study.
        space: The name of its space.
        watcher: Receives all events too, and a message if a tracker fails.

    Yields:
        The watcher for the session.
    """
    if not names:
        yield watcher
        return
    search = {"study": study, "space": space}
    trackers = [_TrackerProcess(name, search, watcher.say) for name in dict.fromkeys(names)]
    wait_s = _INTERRUPTED_WAIT_S
    try:
        yield TrackingWatcher(watcher, trackers)
        wait_s = _WAIT_S
    finally:
        end = time.monotonic() + wait_s  # one deadline for all trackers
        for tracker in trackers:
            tracker.send(None)
        for tracker in trackers:
            tracker.thread.join(max(0.0, end - time.monotonic()))
        for tracker in [tracker for tracker in trackers if tracker.kill()]:
            tracker.thread.join(1.0)
            name = tracker.name
            watcher.say(f"{name} was stopped: it had not finished {wait_s:g} s after the search")


class _TrackerProcess:
    """The process of a tracker, and a thread that writes the events to it."""

    def __init__(self, name: str, search: dict[str, str], say: Callable[[str], None]) -> None:
        self.name, self._say = name, say
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lines.put(json.dumps({"tracker": name, **search}))
        self._process: subprocess.Popen[str] | None = None
        self._killed = False
        self.thread = threading.Thread(target=self._run, name=f"track {name}", daemon=True)
        self.thread.start()

    def send(self, line: str | None) -> None:
        """Queue a line for the process; None ends its input."""
        if self.thread.is_alive():
            self._lines.put(line)

    def kill(self) -> bool:
        """Kill the process if it runs; return whether it did."""
        if not self.thread.is_alive() or self._process is None:
            return False
        self._killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return True

    def _run(self) -> None:
        try:
            reason = self._feed()
        except OSError as error:  # the process could not be started
            reason = str(error)
        if reason and not self._killed:
            self._say(f"{self.name} failed and tracks no further trials: {reason}")

    def _feed(self) -> str | None:
        """Write the events to the process; return the reason if it fails."""
        # The study's path goes through stdin, because all users can read command lines.
        with subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        ) as process:
            self._process = process
            if process.stdin is None or process.stdout is None:
                raise OSError("its process has no pipes")
            with suppress(BrokenPipeError):  # the process has ended, and its output has the reason
                while (line := self._lines.get()) is not None:
                    print(line, file=process.stdin, flush=True)
            with suppress(BrokenPipeError):
                process.stdin.close()
            output = process.stdout.read()
        code = process.returncode
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        with suppress(ValueError, KeyError):
            return str(json.loads(output)["error"]) if code else None
        return f"exit {code}"
