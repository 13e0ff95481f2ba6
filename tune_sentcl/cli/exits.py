"""Exit codes: an error becomes one message on stderr, without a traceback."""

import errno
import functools
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, ParamSpec, TextIO

import typer

from tune_sentcl.errors import BadInputError, CaptureError, TuneSentclError
from tune_sentcl.signals import exit_message, shutdown_signals

FAILED, BAD_INPUT = 1, 2
_BY_SIGNAL = 128


_P = ParamSpec("_P")


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turn a command's errors and signals into messages and exit codes."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            try:
                command(*args, **kwargs)
            finally:
                sys.stdout.flush()  # a closed pipe raises here, not at Python's exit
        except BaseException as error:
            if isinstance(error, CaptureError) and shutdown_signals.reason is None:
                _start_again(error)
            code = _say_reason(error)
            if code is None:
                raise
            raise typer.Exit(code) from None

    return run


def _start_again(error: CaptureError) -> NoReturn:
    """Replace this process, which has lost its GPU, by one that repeats the command.

    A search then goes on from its study. Its limits of time and of failures begin anew.
    """
    say(f"{error}: begins again without graphs")
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, CaptureError.variable: CaptureError.failed})


def _say_reason(error: BaseException) -> int | None:
    """Print why a command ended; its exit code, or None for an unexpected error."""
    reason = shutdown_signals.reason
    if reason is None and isinstance(error, KeyboardInterrupt):  # no signal handler was installed
        reason = signal.SIGINT
    if reason is not None:  # any other error is a consequence of the signal
        sys.stderr.write(exit_message(reason))
        shutdown_signals.user_informed = True
        return _BY_SIGNAL + reason
    if not isinstance(error, TuneSentclError):
        return None
    if not isinstance(error, BadInputError):
        say(f"error: {error}")  # the rest may be a traceback
        return FAILED
    for line in str(error).splitlines():
        say(f"error: {line}")
    return BAD_INPUT


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{text}\n")


def refuse_other_encodings(arguments: Iterable[str]) -> None:
    """Exit if an argument does not have the bytes of UTF-8, in which studies and Arrow name files.

    Python hides other bytes in surrogates, which no file can hold.
    """
    for argument in arguments:
        if os.fsencode(argument).decode("utf-8", "backslashreplace") != argument:
            say(f"error: {argument!a}: must be UTF-8. Set LC_ALL=C.UTF-8, or rename the file.")
            raise SystemExit(BAD_INPUT)


def watch_output() -> None:
    """Replace stdout and stderr by streams that notice a closed pipe.

    They print `?` for what the locale cannot encode, as the lines of a table in ASCII.
    """
    sys.stdout, sys.stderr = _watched(sys.stdout), _watched(sys.stderr)


def _watched(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # the parent process closed it
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace",
        # With PYTHONUNBUFFERED the stream flushes each write; this one has to flush each line.
        line_buffering=stream.line_buffering or stream.write_through,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """A standard stream that discards output after its reader has closed it."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            self._silence()
            if error.errno == errno.EPIPE:
                shutdown_signals.broken_pipe()
            else:  # the terminal was closed; nohup ignores SIGHUP
                signal.raise_signal(signal.SIGHUP)
            return len(data)

    def _silence(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
