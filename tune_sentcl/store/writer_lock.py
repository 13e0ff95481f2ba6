"""One writer per study, on every kind of storage.

The writer holds a lease: a numbered file that it creates only if it is missing, and rewrites every
ten seconds. Another driver creates the next number when the lease was released, when its holder is
dead on the same machine, or when the file has not changed for `_TERM_S` by the waiting driver's
own clock. A writer may not notice that it lost its lease, so it checks before each write, unless
it has just renewed the lease.
"""

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.disk import is_alive
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.objects import TakenError

LEASES = ".lease"
"""The folder of a study's leases."""

_TERM_S = 30.0
_NAME = re.compile(r"([0-9]{6,})\.json")
_UNKNOWN = "a process that has just begun"


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="ignore"))
class Holder:
    """The content of a lease.

    Attributes:
        host: The machine's name.
        pid: The process.
        process: Identifies the process on all machines, at all times: the system's boot id, the
            PID namespace and the process's start time. Empty if unknown.
        token: Distinguishes leases of the same process.
        path: The study's path or URL in that process.
        beat: How often the lease has been renewed.
        released: Whether the lease was released.
        expired: Whether it follows an expired lease whose driver is not barred yet.
    """

    host: str
    pid: int
    process: str
    token: str
    path: str = ""
    beat: int = 0
    released: bool = False
    expired: bool = False

    @classmethod
    def of_this_process(cls, path: str) -> Self:
        """A lease of this process, with a new token."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _process(pid) or "", uuid.uuid4().hex, path)

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """Read a lease; None if it is damaged or not fully written yet."""
        try:
            return TypeAdapter(cls).validate_json(data)
        except ValidationError:
            return None

    def is_alive(self, path: str) -> bool | None:
        """Whether its process runs and has this study; None if this process cannot tell."""
        if not self.process or self.process.rpartition(" ")[0] != _machine():
            return None
        now = _process(self.pid)
        if now is None and is_alive(self.pid):
            # /proc may hide the processes of other users.
            return None
        if now != self.process:
            return False
        # If the paths differ, the lease is a copy, or the study is mounted twice.
        return True if path == self.path else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


_HELD: set[str] = set()
"""The tokens of this process's leases; on a full disk a lease cannot be marked as released."""


class WriterLock:
    """Excludes other drivers from a study until `release` or the end of the process.

    Attributes:
        lease: The number of the lease, higher than all earlier ones.
        was_expired: Whether an earlier driver neither released its lease nor was barred, so its
            requests may still arrive.
    """

    def __init__(self, files: StudyFiles, say: Callable[[str], None] | None = None) -> None:
        """Take the lease.

        Args:
            files: The study.
            say: Called with a message before the constructor waits for another driver's lease.

        Raises:
            StudyError: Another driver has the study, or the storage cannot be written.
        """
        self._files, self._say, self._term = files, say, _TERM_S
        self.was_expired = False
        self._successor: str | None = None
        self._mutex, self._stopped = threading.Lock(), threading.Event()
        self._holder = Holder.of_this_process(files.where)
        self.lease = self._acquire()
        _HELD.add(self._holder.token)
        self._thread = threading.Thread(
            target=self._renew_in_background, name="lease", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raise StudyError if another driver has taken over, or the lease cannot be read."""
        if self._successor is None and _now() >= self._valid_until:
            self._renew()
        if self._successor is not None:
            rule = f"another driver has taken over: {self._successor}"
            move = "Let the other driver continue; the rows that this driver committed are kept."
            raise StudyError(Fault(self._files.where, rule=rule, move=move))

    def release(self) -> None:
        """Release the study to other drivers; a second call does nothing."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        _HELD.discard(self._holder.token)
        self._thread.join()
        with self._mutex, suppress(StudyError):
            # If this write fails, other drivers wait until the lease expires.
            if self._successor is None and _numbers(self._files)[-1:] == [self.lease]:
                self._write(replace(self._holder, released=True, expired=self.was_expired))

    def _acquire(self) -> int:
        while True:
            last = max(_numbers(self._files), default=0)
            if last:
                self._wait_until_free(last)
            began, name = _now(), _name(last + 1)
            with suppress(TakenError):
                self._files.replace(name, _encoded(self._holder), None)
                break
        self._valid_until = began + self._term / 2
        try:
            # If this process was slow, it may have created a number that other drivers had used
            # and left long ago.
            numbers = _numbers(self._files)
            if numbers[-1:] != [last + 1]:
                raise _held_error(self._files.where, "a faster process")
            for number in numbers[:-1]:
                self._files.delete(_name(number))
        except StudyError:
            with suppress(StudyError):
                self._files.delete(name)
            raise
        return last + 1

    def _wait_until_free(self, number: int) -> None:
        """Return when a lease becomes free; raise StudyError if its holder renews it."""
        first: bytes | None = None
        end = 0.0
        while (data := self._files.read_bytes(_name(number))) is not None:
            holder = Holder.parse(data)
            holder_alive = _has_study(holder, self._files) if holder else None
            if holder_alive is False or (holder is not None and holder.released):
                self.was_expired = holder is None or not holder.released or holder.expired
                return
            if holder_alive or first not in (None, data):
                raise _held_error(self._files.where, str(holder or _UNKNOWN))
            if first is None:
                # The term starts after the read, which may be slow.
                first, end = data, _now() + self._term
                if self._say:
                    who = holder or _UNKNOWN
                    self._say(
                        f"waiting {self._term:.0f} s to see whether {who} still writes to "
                        "the study"
                    )
            if _now() >= end:
                self.was_expired = True
                return
            time.sleep(min(1.0, self._term / 10))

    def _renew_in_background(self) -> None:
        while not self._stopped.wait(self._term / 3):
            with suppress(Exception):
                # `check` renews the lease again, and raises the error if that fails too.
                self._renew()

    def _renew(self) -> None:
        with self._mutex:
            began, last = _now(), max(_numbers(self._files), default=0)
            if last != self.lease:
                data = self._files.read_bytes(_name(last))
                self._successor = str((Holder.parse(data) if data else None) or _UNKNOWN)
                return
            self._holder = replace(self._holder, beat=self._holder.beat + 1)
            self._write(self._holder)
            self._valid_until = began + self._term / 2

    def _write(self, holder: Holder) -> None:
        self._files.write_bytes(_name(self.lease), _encoded(holder))


def refuse_held(files: StudyFiles) -> None:
    """Raise StudyError if a process of this machine has the study; ignore other machines."""
    data = files.read_bytes(_name(max(_numbers(files), default=0)))
    holder = Holder.parse(data) if data else None
    if holder and not holder.released and _has_study(holder, files):
        raise _held_error(files.where, str(holder))


def _has_study(holder: Holder, files: StudyFiles) -> bool | None:
    alive = holder.is_alive(files.where)
    if holder.pid == os.getpid() and holder.token not in _HELD:
        # This process released the lease, but a full disk kept it from recording so. None stays
        # None.
        return alive and False
    return alive


def _held_error(study: str, holder: str) -> StudyError:
    rule = f"another driver writes to this study: {holder}"
    move = "Wait until that driver ends, or stop it; then repeat the command."
    return StudyError(Fault(study, rule=rule, move=move))


def _numbers(files: StudyFiles) -> list[int]:
    matches = map(_NAME.fullmatch, files.names(LEASES))
    return sorted(int(match[1]) for match in matches if match)


def _encoded(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _name(number: int) -> str:
    return f"{LEASES}/{number:06d}.json"


def _now() -> float:
    """Seconds of a clock that also runs while the machine sleeps, if the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _machine() -> str:
    """The machine's boot id and this process's PID namespace; empty if the system hides them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(pid: int) -> str | None:
    """The value of `Holder.process`; None if the process is dead or hidden."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after = status.rpartition(")")[2].split()
    return None if after[0] in "ZX" else f"{_machine()} {after[19]}"
