"""Exit codes: errors become one message on stderr, never a traceback."""

import functools
import signal
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from tune_sentcl.errors import BadInputError, TuneSentclError
from tune_sentcl.launch.ending import ending, last_words

FAILED, BAD_INPUT = 1, 2
_BY_SIGNAL = 128


_P = ParamSpec("_P")


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turn a command's errors, and what asks it to end, into messages and exit codes."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            try:
                command(*args, **kwargs)
            finally:
                sys.stdout.flush()  # a reader who has gone is noticed here, not in Python's exit
        except BaseException as error:
            code = _told(error)
            if code is None:
                raise
            raise typer.Exit(code) from None

    return run


def _told(error: BaseException) -> int | None:
    """Say what ended a command; its exit code, or None where that is not ours to say."""
    reason = ending.reason
    if reason is None and isinstance(error, KeyboardInterrupt):  # where nobody listens for signals
        reason = signal.SIGINT
    if reason is not None:  # whatever else went wrong on the way out
        sys.stderr.write(last_words(reason))
        ending.told = True
        return _BY_SIGNAL + reason
    if not isinstance(error, TuneSentclError):
        return None
    for line in str(error).splitlines():
        say(f"error: {line}")
    return BAD_INPUT if isinstance(error, BadInputError) else FAILED


def say(text: str) -> None:
    """Write a line to stderr, with secrets hidden."""
    from tune_sentcl.store.provenance import mask_text  # brings pyarrow, which help needs not

    sys.stderr.write(f"{mask_text(text)}\n")
