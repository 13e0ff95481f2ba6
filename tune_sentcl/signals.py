"""One orderly end for whatever asks a process to stop.

The first to come raises KeyboardInterrupt where the program is, as Ctrl-C does, so that locks and
temporary files are let go on the way out. What follows it is ignored, for `timeout` and job
schedulers send twice. A thread sees to it that the end comes: a way out that hangs, or an
interruption that foreign code has swallowed, is cut short, which loses nothing that is on disk.
"""

import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

_LIMIT_S = 7.0  # whoever sends SIGTERM mostly sends SIGKILL after ten seconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ShutdownSignals:
    """What has asked this process to end, from the first on.

    Attributes:
        reason: The first signal; that of a pipe that nobody reads is SIGPIPE. None as long as
            none has come, and always where nobody has called `install`.
        user_informed: Whether the user has been told.
        folders: What goes with this process, should it have to leave at once.
    """

    def __init__(self) -> None:
        self.reason: signal.Signals | None = None
        self.user_informed = False
        self.folders: set[Path] = set()
        self._raised = False
        self._wake = -1

    def install(self) -> None:
        """Take over the signals of a process that is all ours, in its main thread.

        A signal that is ignored stays so, as SIGHUP under nohup.
        """
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.interrupt)
        sys.unraisablehook = self.on_unraisable
        waiting, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        # Written to by the system's own handler: also where Python's has to wait for a call into
        # foreign code to return, or where Ray has put another in its place.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self._force_exit, args=(waiting,), daemon=True).start()

    def interrupt(self, number: int, frame: FrameType | None = None) -> None:
        """Interrupt this thread, at the first time.

        Raises:
            KeyboardInterrupt: Nothing had asked before.
        """
        self.reason = self.reason or signal.Signals(number)
        if not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def ignore_all(self) -> None:
        """All is done: nothing interrupts what the interpreter still tidies."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def on_unraisable(self, unraisable: Any) -> None:
        """An exception was lost in a finalizer; where it was the interruption, it comes again."""
        if not isinstance(unraisable.exc_value, KeyboardInterrupt) or self.reason is None:
            sys.__unraisablehook__(unraisable)
            return
        self._raised = False
        threading.Timer(0.01, signal.raise_signal, [self.reason]).start()

    def broken_pipe(self) -> None:
        """Nobody reads our output. SIGPIPE itself stays ignored, for sockets send it too."""
        os.write(self._wake, bytes([signal.SIGPIPE]))
        self.interrupt(signal.SIGPIPE)

    @contextmanager
    def deleted_on_exit(self, folder: Path) -> Iterator[None]:
        """A folder goes with this process, should it have to leave at once in the body."""
        self.folders.add(folder)
        try:
            yield
        finally:
            if self.reason is None:  # else whoever fails to delete it still leaves
                self.folders.discard(folder)

    def exit_now(self) -> NoReturn:
        """End this process and all that it has started, at once and without exit handlers.

        Ray's would hang, or end us with a code of its own, where a signal to the whole group has
        ended its processes before. What its workers hold is needed by nobody.
        """
        for pid in descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + (self.reason or 0))

    def _force_exit(self, waiting: int) -> None:
        while (number := os.read(waiting, 1)[0]) not in (*_SIGNALS, signal.SIGPIPE):
            pass
        self.reason = self.reason or signal.Signals(number)
        time.sleep(_LIMIT_S)
        if not self.user_informed and select.select([], [2], [], 0)[1]:  # its reader may be asleep
            os.write(2, exit_message(self.reason).encode())
        self.exit_now()


shutdown_signals = ShutdownSignals()
"""Of this process, as its signals are."""


def exit_message(reason: signal.Signals) -> str:
    """A line for the user; after `| head` none is expected."""
    if reason == signal.SIGPIPE:
        return ""
    by = "" if reason == signal.SIGINT else f" by {reason.name}"
    return f"interrupted{by}; repeat the command to go on\n"


def descendants() -> list[int]:
    """What we have started, and those what they have; none where the system does not list them."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended just now
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    found = [os.getpid()]
    for pid in found:  # which grows: parents come before their children, and can start no more
        found += children.get(pid, [])
    return found[1:]
