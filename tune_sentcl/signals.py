"""Orderly shutdown on signals.

The first signal raises KeyboardInterrupt in the main thread, as Ctrl-C does, so that locks and
temporary files are released. Later signals are ignored, because `timeout` and job schedulers send
two. A thread ends the process after a time limit if the shutdown hangs or if foreign code
swallows the interrupt. Data on disk is not lost then.
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

_LIMIT_S = 7.0  # SIGKILL usually follows SIGTERM after ten seconds
_EXIT_S = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ShutdownSignals:
    """The shutdown state of this process.

    Attributes:
        reason: The first signal; SIGPIPE for a closed output pipe. None before any signal, and
            always without `install`.
        user_informed: Whether a message about the shutdown has been printed.
        folders: Folders to delete if the process exits at once.
        exit_code: The exit code of this process, if it is known while it ends.
    """

    def __init__(self) -> None:
        self.reason: signal.Signals | None = None
        self.user_informed = False
        self.folders: set[Path] = set()
        self.exit_code: int | None = None
        self._raised = False
        self._wake = -1

    def install(self) -> None:
        """Handle the signals of this process; call it in the main thread.

        A signal that is ignored stays ignored, as SIGHUP under nohup.
        """
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.interrupt)
        sys.unraisablehook = self.on_unraisable
        waiting, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        # The system's own handler writes to this pipe, even if Python's handler waits for a call
        # into foreign code, or if Ray has replaced it.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self._force_exit, args=(waiting,), daemon=True).start()

    def interrupt(self, number: int, frame: FrameType | None = None) -> None:
        """Interrupt this thread, once.

        Raises:
            KeyboardInterrupt: At the first call.
        """
        self.reason = self.reason or signal.Signals(number)
        if not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def ignore_all(self) -> None:
        """Ignore signals while the interpreter shuts down."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def on_unraisable(self, unraisable: Any) -> None:
        """Raise the interrupt again if a finalizer swallowed it."""
        if not isinstance(unraisable.exc_value, KeyboardInterrupt) or self.reason is None:
            sys.__unraisablehook__(unraisable)
            return
        self._raised = False
        # A signal to the process wakes a main thread that sleeps; one to this thread would not.
        threading.Timer(0.01, os.kill, [os.getpid(), self.reason]).start()

    def broken_pipe(self) -> None:
        """Shut down after a closed output pipe; SIGPIPE is ignored, as sockets raise it too."""
        os.write(self._wake, bytes([signal.SIGPIPE]))
        self.interrupt(signal.SIGPIPE)

    @contextmanager
    def deleted_on_exit(self, folder: Path) -> Iterator[None]:
        """Delete the folder if the process has to exit at once within the body."""
        self.folders.add(folder)
        try:
            yield
        finally:
            if self.reason is None:  # during a shutdown, `exit_now` deletes it if the caller fails
                self.folders.discard(folder)

    def limit_exit(self) -> None:
        """End this process soon after its main thread, because other exit handlers may hang."""

        def wait() -> None:
            threading.main_thread().join()
            time.sleep(_EXIT_S)
            code = self.exit_code
            os._exit(hasattr(sys, "last_value") if code is None else code)

        threading.Thread(target=wait, daemon=True).start()

    def exit_now(self) -> NoReturn:
        """End this process and its descendants at once, without exit handlers.

        Ray's exit handlers would hang or change the exit code if a signal to the whole process
        group has already ended Ray's processes.
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
        if not self.user_informed and select.select([], [2], [], 0)[1]:  # stderr may be blocked
            os.write(2, exit_message(self.reason).encode())
        self.exit_now()


shutdown_signals = ShutdownSignals()
"""The state of this process."""


def exit_message(reason: signal.Signals) -> str:
    """The last line for the user; empty after a closed pipe, as in `| head`."""
    if reason == signal.SIGPIPE:
        return ""
    by = "" if reason == signal.SIGINT else f" by {reason.name}"
    return f"interrupted{by}; repeat the command to go on\n"


def descendants() -> list[int]:
    """The processes that this one started, and theirs; empty without /proc."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(folder.name))
    pids = [os.getpid()]
    for pid in pids:  # grows; a parent precedes its children, so once killed it starts no more
        pids += children.get(pid, [])
    return pids[1:]
