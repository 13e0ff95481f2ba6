"""The Ray that tests of one process share."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tune_sentcl.on_ray.environment import AUTH_MODE, prepare_ray

prepare_ray()

import ray  # noqa: E402 - its settings come first


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
