"""The driver's side of the trackers: tells each what happens, and never waits for one."""

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
from typing import IO, Any, cast

from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.session import Watcher
from tune_sentcl.store.rows import TrialRow, masked
from tune_sentcl.trial import Progress

_PATIENCE_S = 60.0  # for what a tracker still has to write when the search is over
_HASTE_S = 3.0  # where the search was interrupted: it may take 7 seconds to its end
_DYING_S = 1.0  # until a process that was killed is gone


class Tracking:
    """A `Watcher` that passes on what it is told, to another one and to the trackers."""

    def __init__(self, watcher: Watcher, followers: Sequence["_Follower"]) -> None:
        self._watcher, self._followers = watcher, followers

    def begin(self, done: int, total: int) -> None:
        """See `Watcher`."""
        self._watcher.begin(done, total)

    def started(self, assignment: Assignment) -> None:
        """See `Watcher`."""
        self._watcher.started(assignment)
        config = masked(assignment.config.nested())
        self._tell(
            assignment.trial_id,
            "begun",
            configuration=assignment.configuration,
            config=config,
            files=assignment.attempt_files,
        )

    def planned(self, seconds: float) -> None:
        """See `Watcher`."""
        self._watcher.planned(seconds)

    def point(self, trial_id: str, progress: Progress) -> None:
        """See `Watcher`."""
        self._watcher.point(trial_id, progress)
        self._tell(trial_id, "point")

    def ended(self, row: TrialRow, total: int) -> None:
        """See `Watcher`."""
        self._watcher.ended(row, total)
        self._tell(row.trial_id, "ended", row=row.values())

    def say(self, text: str) -> None:
        """See `Watcher`."""
        self._watcher.say(text)

    def _tell(self, trial_id: str, did: str, **what: Any) -> None:
        line = json.dumps({"did": did, "trial": trial_id, **what}, default=str)
        for follower in self._followers:
            follower.tell(line)


@contextmanager
def tracked(names: Sequence[str], study: str, space: str, watcher: Watcher) -> Iterator[Watcher]:
    """Have trackers follow a search; at the end of the block they get time to write.

    Args:
        names: The trackers, as `check_tracking` has found them fit.
        study: The study, which this process has open.
        space: The name of its space.
        watcher: Is told all that the trackers are, and when one of them fails.

    Yields:
        Whom the session is to tell.
    """
    if not names:
        yield watcher
        return
    followers = [
        _Follower(name, {"tracker": name, "study": study, "space": space}, watcher.say)
        for name in dict.fromkeys(names)
    ]
    patience = _HASTE_S
    try:
        yield Tracking(watcher, followers)
        patience = _PATIENCE_S
    finally:
        for follower in followers:
            follower.finish()
        _wait(followers, patience)


def _wait(followers: Sequence["_Follower"], patience: float) -> None:
    """Give all of them the same time, for nobody may wait longer because there are more."""
    end = time.monotonic() + patience
    for follower in followers:
        follower.wait(end)
    late = [follower for follower in followers if follower.cut()]
    end = time.monotonic() + _DYING_S
    for follower in late:
        follower.wait(end)
        follower.report(patience)


class _Follower:
    """The process of a tracker, and a thread that writes to it what is told."""

    def __init__(self, name: str, search: dict[str, Any], say: Callable[[str], None]) -> None:
        self._name, self._say = name, say
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._failed = self._cut = False
        self.tell(json.dumps(search))
        self._thread = threading.Thread(target=self._run, name=f"track {name}", daemon=True)
        self._thread.start()

    def tell(self, line: str) -> None:
        """Have a line written, as soon as the process takes it."""
        if not self._failed:
            self._lines.put(line)

    def finish(self) -> None:
        """Nothing more will be told."""
        self._lines.put(None)

    def wait(self, end: float) -> None:
        """Wait for the end of the process, as long as the clock has not come to a time."""
        self._thread.join(max(0.0, end - time.monotonic()))

    def cut(self) -> bool:
        """End the process where it goes on, and say whether it did."""
        if not self._thread.is_alive() or self._process is None:
            return False
        self._cut = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return True

    def report(self, seconds: float) -> None:
        """Say that it was given no more time than this."""
        self._say(f"{self._name} was not done with all of the search in {seconds:g} s more")

    def _run(self) -> None:
        try:
            reason = self._write()
        except OSError as error:  # there is no process to be had
            reason = str(error)
        if reason and not self._cut:
            self._failed = True
            self._say(f"{self._name} tracks nothing from here on: {reason}")

    def _write(self) -> str | None:
        """Write what is told, to the end; why that came too early."""
        # Nothing of the study stands on the command line, for that everybody can read.
        with subprocess.Popen(
            [sys.executable, "-m", "tune_sentcl.launch.tracking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        ) as process:
            self._process = process
            reading, writing = cast(IO[str], process.stdout), cast(IO[str], process.stdin)
            with suppress(BrokenPipeError):  # it has ended, and says why
                while (line := self._lines.get()) is not None:
                    print(line, file=writing, flush=True)
            with suppress(BrokenPipeError):
                writing.close()
            said = reading.read()
        return _reason(said, process.returncode)


def _reason(said: str, code: int) -> str | None:
    if not code:
        return None
    try:
        return str(json.loads(said)["error"])
    except (ValueError, KeyError):
        return f"its process ended by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
