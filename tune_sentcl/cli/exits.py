"""Exit codes: errors become one message on stderr, never a traceback."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from tune_sentcl.errors import BadInputError, TuneSentclError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


_P = ParamSpec("_P")


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turn a command's errors into messages and exit codes."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            say("interrupted; repeat the command to go on")
            raise typer.Exit(INTERRUPTED) from None
        except TuneSentclError as error:
            for line in str(error).splitlines():
                say(f"error: {line}")
            code = BAD_INPUT if isinstance(error, BadInputError) else FAILED
            raise typer.Exit(code) from None

    return run


def say(text: str) -> None:
    """Write a line to stderr, with secrets hidden."""
    from tune_sentcl.store.provenance import mask_text  # brings pyarrow, which help needs not

    sys.stderr.write(f"{mask_text(text)}\n")
