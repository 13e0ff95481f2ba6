"""The lock of a cache's folder, which lets one process at a time write there.

The operating system frees the lock when its holder ends, except on some network disks, and a
holder can hang. The holder therefore keeps a note beside the lock and renews it while it works. A
waiting process gives up when the note has not changed for too long. It compares contents and no
times, because the clocks of machines differ.
"""

import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from tune_sentcl.errors import Fault, ResourceError

Renew = Callable[[int, int], None]
"""Takes the number of sentences that are done, and the number of all."""

PATIENCE_S = 600.0
"""Seconds without a change of the note after which a waiting process gives up."""

KEPT = (".lock", ".holder")
"""The lock file, which stays, and the holder's note, which the holder removes at its end."""

_LOOK_S = 1.0
_RENEW_S = 1.0
_SHORT_S = 10.0  # a shorter wait is not reported

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """The words with which messages describe the work in a cache's folder.

    Attributes:
        cache: The name of the cache, such as "token store".
        things: Its contents, such as "tokens".
        done: The work on a sentence, such as "tokenized".
    """

    cache: str
    things: str
    done: str


@contextmanager
def cache_lock(
    folder: Path, patience: float, tell: Callable[[str], None], work: Work
) -> Iterator[Renew]:
    """Hold the lock of an existing folder; wait while another process holds it.

    Args:
        folder: The folder.
        patience: Seconds without a change of the holder's note before this process gives up.
        tell: Takes a line about a long wait, once it is over.
        work: The words for messages.

    Yields:
        A function that the work must call as it goes on, which renews the note.

    Raises:
        ResourceError: The holder's note has not changed for too long.
        OSError: The disk refused an operation.
        NotImplementedError: The file system has no locks.
    """
    lock, note = (folder / name for name in KEPT)
    file_lock = FileLock(lock)
    _acquire(file_lock, folder, patience, tell, work)
    try:
        yield _Note(note).renew
    finally:
        with suppress(OSError):  # a note without a locked lock has no effect
            note.unlink(missing_ok=True)
        file_lock.release()


def _acquire(
    lock: FileLock, folder: Path, patience: float, tell: Callable[[str], None], work: Work
) -> None:
    start = time.monotonic()
    watch, told = _Watch(start, work.done), False
    while True:
        try:
            lock.acquire(timeout=_LOOK_S)
            break
        except Timeout:
            now = time.monotonic()
            if watch.still(_read(folder / KEPT[1]), now) > patience:
                raise _given_up(folder, watch.holder, patience, work) from None
            if not told and now - start > _SHORT_S:
                told = True
                _log.warning("%s: waiting for %s", work.cache, watch.holder)
    if told:
        seconds = time.monotonic() - start
        tell(f"{work.cache}: waited {seconds:.0f} s for {watch.holder}")


class _Watch:
    """Measures for how long the holder's note has not changed.

    Attributes:
        holder: The last known holder, in words.
    """

    def __init__(self, now: float, done: str) -> None:
        self._done = done
        self.holder = "a process that has left no note"
        self._note, self._changed = "", now

    def still(self, note: str, now: float) -> float:
        """Seconds since the note last changed."""
        if note != self._note:
            self._note, self._changed = note, now
            self.holder = _in_words(note, self._done) or self.holder
        return now - self._changed


class _Note:
    """The holder's note: process, start and progress; renewed once a second at most."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._since = _utc()
        self._renewed = -math.inf
        self._write(0, 0)

    def renew(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._renewed > _RENEW_S:
            self._renewed = now
            self._write(done, total)

    def _write(self, done: int, total: int) -> None:
        values = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": self._since,
            "done": done,
            "total": total,
            "renewed": _utc(),
        }
        with suppress(OSError):  # the work itself will report a fault of the disk
            self._path.write_text(json.dumps(values), encoding="utf-8")


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8")
    except (OSError, ValueError):  # missing, or half written
        return ""


def _in_words(note: str, done: str) -> str | None:
    try:
        values = json.loads(note)
        far = f"{values['done']:,} of {values['total']:,} sentences {done}"
        return f"process {values['pid']} on {values['host']} (since {values['since']}, {far})"
    except (ValueError, KeyError, TypeError):
        return None


def _given_up(folder: Path, holder: str, patience: float, work: Work) -> ResourceError:
    rule = f"its lock is held by {holder}, which has not responded for {patience:g} s"
    move = (
        f"Stop that process; if it is gone, delete {KEPT[0]} there; "
        "or set TUNE_SENTCL_CACHE to another folder."
    )
    return ResourceError(Fault(work.cache, "", str(folder), rule, move))


def _utc() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
