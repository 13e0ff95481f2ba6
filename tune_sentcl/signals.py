"""SIGTERM and SIGHUP end a command as Ctrl-C does, so it releases locks and temporary files."""

import math
import os
import signal
import sys
import time
from threading import Thread
from types import FrameType

# `timeout` and job schedulers signal first a process and then its group, so a signal within these
# seconds counts as the same one.
_REPEATED_S = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[signal.Signals] = []
hanging: list[Thread] = []
"""Threads of other libraries, such as a tracker's, for which the command no longer waits."""


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt in the main thread on SIGINT, SIGTERM and SIGHUP.

    Call it in the main thread. A signal less than 3 seconds after the previous one has no effect.
    A later signal raises again, because other libraries may swallow the first exception, or hang.
    An ignored signal stays ignored, for example SIGHUP under nohup.
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
    """The signal that ended a command with this error; SIGPIPE for a closed pipe, else None."""
    if _received:
        # If a signal has interrupted a call, the call may raise any error.
        return _received[0]
    if isinstance(error, KeyboardInterrupt):
        # Python's own handler for SIGINT raised this.
        return signal.SIGINT
    return signal.SIGPIPE if isinstance(error, BrokenPipeError) else None


def exit_past_hanging(code: int) -> None:
    """End this process at once if a thread of another library hangs.

    The thread's exit handlers may hang, too.
    """
    if any(thread.is_alive() for thread in hanging):
        sys.stdout.flush()
        os._exit(code)
