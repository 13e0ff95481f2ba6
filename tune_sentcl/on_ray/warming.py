"""A cluster of this machine's own whose first workers have imported what trials need."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tune_sentcl.on_ray import preload
from tune_sentcl.on_ray.cluster import cluster, quiet_ray_logging
from tune_sentcl.signals import shutdown_signals

_MODULES = "RAY_preload_python_modules"


@contextmanager
def warm_cluster(workers: int, at_a_time: int) -> Iterator[None]:
    """Start Ray, and have so many of its first workers import what a trial needs.

    Ray starts one worker a core, and does not say which of them it gives a trial: mostly the one
    that came up first. A trial that gets another one imports by itself, as it does in a cluster
    that was not begun here.

    Args:
        workers: How many.
        at_a_time: How many of them import side by side, the others in turn behind them.

    Raises:
        ResourceError: Ray does not start.
    """
    # Named as Tune's files are, so that what a killed driver leaves goes with them.
    prefix = f"tune_sentcl_tune_{os.getpid()}_"
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as folder,
        shutdown_signals.deleted_on_exit(Path(folder)),
    ):
        for number in range(workers):
            Path(folder, f"{number:06}-core{number % at_a_time}.free").touch()
        modules = [os.environ.get(_MODULES, ""), preload.__name__]
        settings = {
            _MODULES: ",".join(filter(None, modules)),
            preload.FOLDER: folder,
        }
        with _environment(settings), quiet_ray_logging(), cluster("local"):
            yield


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables, and put back what was there."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
