"""Standard streams that end the command where nobody reads them any more."""

import errno
import io
import os
import signal
import sys
from typing import Any, TextIO

from tune_sentcl.launch.ending import ending


def watch_output() -> None:
    """Put streams that see their reader go in the place of the standard ones."""
    sys.stdout, sys.stderr = _watched(sys.stdout), _watched(sys.stderr)


def _watched(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # closed by who started us
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        # One that is unbuffered (PYTHONUNBUFFERED, as images set it) has none of its own to flush.
        line_buffering=stream.line_buffering or stream.write_through,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """A standard stream; where its reader has gone, what is still written goes nowhere."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            self._silence()
            if error.errno == errno.EPIPE:
                ending.unread()
            else:  # the terminal has gone; under nohup that ends nothing
                signal.raise_signal(signal.SIGHUP)
            return len(data)

    def _silence(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
