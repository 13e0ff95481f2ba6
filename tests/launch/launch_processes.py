"""Processes that the tests of the launchers watch and kill."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from processes import alive as alive
from processes import descendants as descendants
from processes import wait_until as wait_until


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
