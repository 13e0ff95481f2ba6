"""Processes that the tests of the launchers watch and kill, and the local Ray that they share."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tune_sentcl.launch.ray.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402 - its settings come first

_LIMIT = 120.0


def wait_until(condition: Callable[[], Any], what: str, seconds: float = _LIMIT) -> Any:
    """Poll until something observable holds; returns what made it true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.02)
    return found


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


def start_ray() -> None:
    """A local Ray with two cores, kept until the process ends or shuts it down."""
    if not ray.is_initialized():
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
        )


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


def trial_workers(root: int | None = None) -> list[int]:
    """The processes in which trials of a driver's local Ray run now."""
    commands = descendants(root or os.getpid())
    return [pid for pid, command in commands.items() if command.startswith("ray::ImplicitFunc")]


def alive(pids: "set[int] | dict[int, str]") -> set[int]:
    return set(pids) & processes().keys()
