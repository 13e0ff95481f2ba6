"""One process at a time in a cache's folder; who waits says for whom, and not without end.

The system frees the lock when its holder ends; on a network disk perhaps not, and a holder may
hang. So it leaves a note beside the lock and renews it as its work goes on, and who waits gives up
where the note has stood still for too long. Only changes count: clocks of machines differ.
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
"""Told of sentences done and in all, as often as there is something to tell."""

PATIENCE_S = 600.0
"""How long a note may stand still before those who wait give up."""

KEPT = (".lock", ".holder")
"""The lock, which stays, and its holder's note, which goes with the holder."""

_LOOK_S = 1.0
_RENEW_S = 1.0
_SHORT_S = 10.0  # an ordinary wait, of which nothing is said

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What is done in a cache's folder, in words.

    Attributes:
        cache: The cache.
        things: What it holds.
        done: What is done to a sentence.
    """

    cache: str
    things: str
    done: str


@contextmanager
def turn(
    folder: Path, patience: float, tell: Callable[[str], None], work: Work
) -> Iterator[Renew]:
    """Hold a folder's lock, to which others may have to be waited for.

    Args:
        folder: It exists.
        patience: Seconds that a holder may show no life.
        tell: Takes a line of a wait that was no short one, once it is over.
        work: What is done there.

    Yields:
        What the work must call as it goes on, to show life.

    Raises:
        ResourceError: A holder has shown no life for too long.
        OSError: The disk refused.
        NotImplementedError: It has no locks.
    """
    lock, note = (folder / name for name in KEPT)
    held = FileLock(lock)
    _acquire(held, folder, patience, tell, work)
    try:
        yield _Note(note).renew
    finally:
        with suppress(OSError):  # a note that stays says nothing: nobody holds the lock
            note.unlink(missing_ok=True)
        held.release()


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
    """Sees for how long a holder's note has stood still.

    Attributes:
        holder: Who it was when last seen, in words.
    """

    def __init__(self, now: float, done: str) -> None:
        self._done = done
        self.holder = "a process that has left no note"
        self._note, self._changed = "", now

    def still(self, note: str, now: float) -> float:
        """Seconds since the note was last another one than now."""
        if note != self._note:
            self._note, self._changed = note, now
            self.holder = _in_words(note, self._done) or self.holder
        return now - self._changed


class _Note:
    """Who holds the lock, since when, and how far it is; renewed not more than once a second."""

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
        facts = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": self._since,
            "done": done,
            "total": total,
            "renewed": _utc(),
        }
        with suppress(OSError):  # the work itself will meet what is wrong with the disk
            self._path.write_text(json.dumps(facts), encoding="utf-8")


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8")
    except (OSError, ValueError):  # not there yet, or half written
        return ""


def _in_words(note: str, done: str) -> str | None:
    try:
        facts = json.loads(note)
        far = f"{facts['done']:,} of {facts['total']:,} sentences {done}"
        return f"process {facts['pid']} on {facts['host']} (since {facts['since']}, {far})"
    except (ValueError, KeyError, TypeError):
        return None


def _given_up(folder: Path, holder: str, patience: float, work: Work) -> ResourceError:
    rule = f"its lock is held by {holder}, which has shown no life for {patience:g} s"
    move = (
        f"Stop that process; if it is gone, delete {KEPT[0]} there; "
        "or set TUNE_SENTCL_CACHE to another folder."
    )
    return ResourceError(Fault(work.cache, "", str(folder), rule, move))


def _utc() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
