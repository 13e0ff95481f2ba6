"""A process that is killed at its n-th write, without a process.

An audit hook sees every call that changes a disk. Once armed it lets so many of them pass and
then raises at each, so that no handler or clean-up writes either: what is left on the disk is what
a kill leaves.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Stopped(BaseException):
    """The kill."""


class Stop:
    """Counts the changes below a folder, and forbids all after the first `allowed`."""

    def __init__(self, folder: Path, allowed: int | None) -> None:
        self.folder, self.allowed, self.seen = str(folder), allowed, 0

    def see(self, event: str, arguments: tuple[object, ...]) -> None:
        path, last = arguments[0], arguments[-1]
        number = last if isinstance(last, int) else -1
        inside = str(path).startswith(self.folder)
        # The last argument of `open` are its flags; inside `rmtree`, where names are relative, it
        # is the folder that they are relative to.
        if not (inside and number & _WRITING if event == "open" else inside or number >= 0):
            return
        if self.allowed is not None and self.seen >= self.allowed:
            raise Stopped(f"{event} {path}")
        self.seen += 1


_armed: list[Stop] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _armed or (event != "open" and event not in _CHANGES):
        return
    # Other threads write at times that differ from run to run.
    if threading.current_thread() is threading.main_thread():
        _armed[-1].see(event, arguments)


sys.addaudithook(_hook)


@contextmanager
def writes(folder: Path, allowed: int | None = None) -> Iterator[Stop]:
    """Count the block's writes below a folder; `Stopped` is raised at the one too many."""
    stop = Stop(folder, allowed)
    _armed.append(stop)
    try:
        yield stop
    finally:
        _armed.pop()


def bury(folder: Path) -> None:
    """Let this process's temporary names be those of one that is dead."""
    host = socket.gethostname()
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    for path in sorted(folder.rglob(f".*.{os.getpid()}@{host}"), reverse=True):
        name = path.name.removesuffix(f"{os.getpid()}@{host}")
        path.rename(path.with_name(f"{name}{dead.pid}@{host}"))
