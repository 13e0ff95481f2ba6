"""Exit codes: an error becomes one message on stderr, without a traceback."""

import functools
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn, ParamSpec, TextIO

from tune_sentcl.errors import BadInputError, CaptureError, ConfigError, Fault, TuneSentclError
from tune_sentcl.signals import signal_behind

FAILED, BAD_INPUT = 1, 2
_BY_SIGNAL = 128


_P = ParamSpec("_P")
_JSON_STREAM: ContextVar[TextIO | None] = ContextVar("json_stream", default=None)


def json_stream() -> TextIO:
    """The stream for the JSON of a command: stdout, to which nothing else writes with --json."""
    return _JSON_STREAM.get() or sys.stdout


@contextmanager
def _json_alone() -> Iterator[None]:
    """Let all output but the JSON go to stderr, because a plugin's code may print anything."""
    token = _JSON_STREAM.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _JSON_STREAM.reset(token)


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Wrap a command: its errors and signals become messages and exit codes."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            with _json_alone() if kwargs.get("json_rows") else nullcontext():
                command(*args, **kwargs)
            # A closed pipe raises here, where it is handled, instead of when Python flushes at its
            # exit.
            sys.stdout.flush()
        except BaseException as error:
            if (number := signal_behind(error)) is not None:
                raise SystemExit(_interrupted(number)) from None
            if isinstance(error, CaptureError):
                _start_again(error)
            if not isinstance(error, TuneSentclError):
                raise
            raise SystemExit(_say_error(error)) from None

    return run


def _start_again(error: CaptureError) -> NoReturn:
    """Replace this process, which can no longer use its GPU, by one that repeats the command.

    A search then continues from its study. Its limits of time and of failures start anew.
    """
    say(f"{error}; the command starts again without CUDA graphs")
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, CaptureError.variable: CaptureError.failed})


def _interrupted(number: signal.Signals) -> int:
    """The exit code of a command that a signal or a closed pipe has ended."""
    by = "" if number == signal.SIGINT else f" by {number.name}"
    with suppress(OSError):
        # Writing fails if the reader of the pipe or the terminal is gone.
        if number != signal.SIGPIPE:
            say(f"interrupted{by}; repeat the command to continue")
        sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # At its exit Python flushes both streams once more, which must not raise again.
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    return _BY_SIGNAL + number


def _say_error(error: TuneSentclError) -> int:
    if not isinstance(error, BadInputError):
        # Only the first line gets the prefix: the further lines may be a traceback.
        say(f"error: {error}")
        return FAILED
    for line in str(error).splitlines():
        say(f"error: {line}")
    return BAD_INPUT


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{text}\n")


def unwritable(option: str, path: Path, error: OSError | ValueError) -> ConfigError:
    """The error of a command that cannot write the file or folder that an option names."""
    rule = f"cannot be written ({getattr(error, 'strerror', None) or error})"
    return ConfigError(Fault(option, value=str(path), rule=rule, move="Choose another folder."))


def refuse_other_encodings(arguments: Iterable[str]) -> None:
    """Exit if an argument is not UTF-8, because studies and Arrow name files in UTF-8.

    Python replaces other bytes by surrogates, which cannot be written to a file.
    """
    for argument in arguments:
        if os.fsencode(argument).decode("utf-8", "backslashreplace") != argument:
            say(f"error: {argument!a}: must be UTF-8. Set LC_ALL=C.UTF-8, or rename the file.")
            raise SystemExit(BAD_INPUT)


def replace_unprintable() -> None:
    """Print `?` for characters that the locale cannot encode, such as a table's lines in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        # Python sets a stream to None if the parent process has closed it.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
