"""One driver a study where no lock of the system reaches: on shared disks and object stores.

A lease is a file with a number that is made where there was none, and refreshed by who made it.
The next number is made by whoever has watched the last one for `_TERM_S` without a change, found
it given back, or found its holder dead on the same machine. No two machines' clocks are compared.
Being put out stops nobody who is only slow, so a holder looks again before it writes, unless its
last refreshing was so lately that nobody can have waited long enough.
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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.disk import alive
from tune_sentcl.store.files import StudyFiles

FOLDER = ".lease"
"""Where the leases of a study lie."""

_TERM_S = 30.0
_NAME = re.compile(r"([0-9]{6,})\.json")


@dataclass(frozen=True)
class Holder:
    """What a lease says of who has it.

    Attributes:
        host: The machine's name.
        pid: The process.
        process: What tells that process from later ones and from other machines': the system's
            start, the namespace of its processes, and when it began.
        token: Tells one holding from another of the same process.
        place: Where the study lies for that process.
        beat: How often it was refreshed.
        released: Whether it was given back.
    """

    host: str
    pid: int
    process: str
    token: str
    place: str = ""
    beat: int = 0
    released: bool = False

    @classmethod
    def me(cls, place: str) -> Self:
        """This process, holding once more."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _process(pid) or "", uuid.uuid4().hex, place)

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """What a lease's bytes say; None of those that are not written out yet."""
        try:
            found = cls(**json.loads(data))
        except (ValueError, TypeError):
            return None
        return found if all(type(getattr(found, f.name)) is f.type for f in fields(cls)) else None

    def lives(self, place: str) -> bool | None:
        """Whether its process runs and has this study; None where none can see that from here."""
        if not self.process or self.process.rpartition(" ")[0] != _here():
            return None
        now = _process(self.pid)
        if now is None and alive(self.pid):  # /proc hides other users' processes
            return None
        if now != self.process:
            return False
        return True if place == self.place else None  # it may be a copy, or another way to it

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """Held from its making until `release`, as long as it can be refreshed.

    Attributes:
        number: Higher than that of every lease of the study before.
    """

    def __init__(
        self,
        files: StudyFiles,
        say: Callable[[str], None] | None = None,
        term: float | None = None,
    ) -> None:
        """Take the lease, watching the one before where nothing else says that it is free.

        Args:
            files: The study.
            say: Is told when there is something to wait for.
            term: Seconds without a refreshing after which another may take it; None: `_TERM_S`.

        Raises:
            StudyError: Another driver has it, or the disk refused.
        """
        self._files, self._term = files, term or _TERM_S
        self._me = Holder.me(files.where)
        self._successor: str | None = None
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self.number = self._take(say or _silent)
        self._thread = threading.Thread(target=self._refreshing, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """See that this is still the lease, before a write.

        Raises:
            StudyError: Another driver has taken over, or that cannot be seen.
        """
        if self._successor is None and _now() >= self._sure_until:
            self._refresh()
        if self._successor is not None:
            rule = f"another driver has taken over: {self._successor}"
            move = "Leave the study to it; what this one had committed is kept."
            raise StudyError(Fault(self._files.where, "", "", rule, move))

    def release(self) -> None:
        """Give it back; a second call does nothing, and so does one whose turn is over.

        Where the disk refuses, it runs out by itself.
        """
        if self._ending.is_set():
            return
        self._ending.set()
        self._thread.join()
        with self._guard, suppress(StudyError):
            if self._successor is None and _highest(self._files) == self.number:
                self._write(replace(self._me, released=True))

    def _take(self, say: Callable[[str], None]) -> int:
        while True:
            last = _highest(self._files)
            if last:
                self._watch(last, say)
            began = _now()
            if self._files.create(_name(last + 1), self._bytes(self._me)):
                break
        self._sure_until = began + self._term / 2
        try:
            # Who was slow may have made a number that was made and passed long ago.
            if _highest(self._files) != last + 1:
                raise self._held("a process that was faster")
            for number in _numbers(self._files):
                if number <= last:
                    self._files.delete(_name(number))
        except StudyError:
            with suppress(StudyError):
                self._files.delete(_name(last + 1))
            raise
        return last + 1

    def _watch(self, number: int, say: Callable[[str], None]) -> None:
        """Wait until a lease is free.

        Raises:
            StudyError: Somebody has it.
        """
        first: bytes | None = None
        end = 0.0
        while (data := self._files.read_bytes(_name(number))) is not None:
            holder = Holder.parse(data)
            lives = holder.lives(self._files.where) if holder else None
            if lives is False or (holder is not None and holder.released):
                return
            if lives or first not in (None, data):
                raise self._held(str(holder or "a process that has only now begun"))
            if first is None:
                first, end = data, _now() + self._term  # counted from when it was seen
                who = holder or "whoever made it"
                say(f"waiting {self._term:.0f} s to see whether {who} still has the study")
            if _now() >= end:
                return
            time.sleep(min(1.0, self._term / 10))

    def _held(self, holder: str) -> StudyError:
        rule = f"another driver has this study: {holder}"
        move = "Wait for it to end, or stop it; then repeat the command."
        return StudyError(Fault(self._files.where, "", "", rule, move))

    def _refreshing(self) -> None:
        while not self._ending.wait(self._term / 3):
            try:
                self._refresh()
            except Exception:  # noqa: BLE001 - `check` tries again, and says so
                continue

    def _refresh(self) -> None:
        with self._guard:
            began, last = _now(), _highest(self._files)
            if last != self.number:
                data = self._files.read_bytes(_name(last))
                holder = Holder.parse(data) if data else None
                self._successor = str(holder or "a process that has only now begun")
                return
            self._me = replace(self._me, beat=self._me.beat + 1)
            self._write(self._me)
            self._sure_until = began + self._term / 2

    def _write(self, holder: Holder) -> None:
        self._files.write_bytes(_name(self.number), self._bytes(holder))

    @staticmethod
    def _bytes(holder: Holder) -> bytes:
        return json.dumps(asdict(holder)).encode()


def leased(files: StudyFiles) -> bool:
    """Whether a study has ever had a lease, for then others see it.

    Raises:
        StudyError: The disk refused.
    """
    return _highest(files) > 0


def _numbers(files: StudyFiles) -> list[int]:
    matches = map(_NAME.fullmatch, files.names(FOLDER))
    return sorted(int(match[1]) for match in matches if match)


def _highest(files: StudyFiles) -> int:
    return max(_numbers(files), default=0)


def _name(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"


def _now() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _silent(text: str) -> None:
    del text


def _here() -> str:
    """This start of this machine and this namespace of its processes; empty if not to be seen."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(pid: int) -> str | None:
    """What tells a process from all others; None if there is none, or none can be seen."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after = status.rpartition(")")[2].split()
    return None if after[0] in "ZX" else f"{_here()} {after[19]}"
