"""SIGTERM and SIGHUP end a command as Ctrl-C does: it releases locks and temporary files."""

import math
import os
import signal
import sys
import time
from threading import Thread
from types import FrameType

_REPEATED_S = 3.0  # `timeout` and job schedulers signal a process, and then its group
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[signal.Signals] = []
hanging: list[Thread] = []
"""Threads of foreign code that nothing waits for any more, such as a tracker's."""


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt in the main thread, which calls this function, on each signal.

    A signal within 3 seconds of the one before does nothing. A later one raises again, because
    foreign code may have swallowed the first, or hang. An ignored signal stays ignored, as SIGHUP
    under nohup.
    """
    last = -math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now > last + _REPEATED_S:
            last = now
            _received.append(signal.Signals(number))
            raise KeyboardInterrupt

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def signal_behind(error: BaseException) -> signal.Signals | None:
    """The signal that ended a command with this error, SIGPIPE for a closed pipe; or None."""
    if _received:  # what is interrupted may raise any other error
        return _received[0]
    if isinstance(error, KeyboardInterrupt):  # Python's own handler
        return signal.SIGINT
    return signal.SIGPIPE if isinstance(error, BrokenPipeError) else None


def exit_past_hanging(code: int) -> None:
    """End this process at once if foreign code hangs, because its exit handlers may hang, too."""
    if any(thread.is_alive() for thread in hanging):
        sys.stdout.flush()
        os._exit(code)
