"""Processes that the tests of the launchers watch and kill, and the local Ray that they share."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from processes import alive as alive
from processes import descendants as descendants
from processes import wait_until as wait_until

from tune_sentcl.launch.ray.environment import AUTH_MODE, prepare_ray

prepare_ray()

import ray  # noqa: E402 - its settings come first


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


@contextmanager
def no_token() -> Iterator[None]:
    """Begin a Ray that asks for none, and that leaves none in the home or in the variables.

    A process's core is in one mode: all that tests begin in their own process are without.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(AUTH_MODE, "disabled")
        yield


def start_ray() -> None:
    """A local Ray with two cores, kept until the process ends or shuts it down."""
    if not ray.is_initialized():
        with no_token():
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                log_to_driver=False,
            )


def trial_workers(root: int | None = None) -> list[int]:
    """The processes in which trials of a driver's local Ray run now."""
    commands = descendants(root or os.getpid())
    return [pid for pid, command in commands.items() if command.startswith("ray::ImplicitFunc")]
