"""Processes that tests watch and kill, and the time that passes meanwhile."""

import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

_LIMIT = 300.0  # how long a crowded machine may take; nothing waits longer than it must

LISTENS = "0A"  # the state of a socket in /proc/net/tcp
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def wait_until(condition: Callable[[], Any], what: str, seconds: float = _LIMIT) -> Any:
    """Poll until something observable holds; returns what made it true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.02)
    return found


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that runs; ended ones are left out."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended just now
            continue
        state, parent = status.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            text = command.replace(b"\0", b" ").decode(errors="replace").strip()
            found[int(folder.name)] = (int(parent), text)
    return found


def descendants(root: int) -> dict[int, str]:
    """Command lines of the processes that a process has started, and theirs."""
    table = processes()
    found: dict[int, str] = {}
    new = {root}
    while new:
        new = {pid for pid, (parent, _) in table.items() if parent in new}
        found.update((pid, table[pid][1]) for pid in new)
    return found


def alive(pids: "set[int] | dict[int, str]") -> set[int]:
    return set(pids) & processes().keys()


def listening(pids: set[int]) -> dict[str, set[str]]:
    """The addresses at which processes listen, each with who does."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    sockets = {
        fields[9]: fields[1]
        for fields in (line.split() for table in tables for line in table)
        if fields[3] == LISTENS
    }
    commands, found = processes(), dict[str, set[str]]()
    for pid in pids & commands.keys():
        for inode in open_sockets(pid) & sockets.keys():
            found.setdefault(sockets[inode], set()).add(commands[pid][1][:60])
    return found


def open_sockets(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found |= set(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
        except OSError:  # closed just now
            continue
    return found


@contextmanager
def full_disk(size: int = 512) -> Iterator[None]:
    """As on a full disk: no file that this process writes may grow beyond some bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def child(script: ModuleType, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a test's module in a process of its own, which is killed at the end if it still runs."""
    command = [sys.executable, str(script.__file__), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> str:
    """The next line of a child."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def go(process: subprocess.Popen[str]) -> None:
    """Let a child that waits go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def beside(action: Callable[[], None]) -> Iterator[None]:
    """Do something in a thread while the body runs; its error is raised after the body."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - passed on to the test
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


def trial_workers(root: int | None = None) -> list[int]:
    """The processes in which trials of a driver's local Ray run now."""
    commands = descendants(root or os.getpid())
    return [pid for pid, command in commands.items() if command.startswith("ray::ImplicitFunc")]
