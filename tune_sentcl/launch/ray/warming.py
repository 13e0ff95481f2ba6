"""A cluster of this machine's own whose first workers have imported what trials need."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tune_sentcl.launch.ending import ending
from tune_sentcl.launch.ray import preload
from tune_sentcl.launch.ray.cluster import cluster, quiet

_MODULES = "RAY_preload_python_modules"


@contextmanager
def warm_cluster(workers: int) -> Iterator[None]:
    """Start Ray, and have so many of its first workers import what a trial needs.

    Ray starts one worker a core, and gives a trial the last that came up: so the last ones import.
    A trial that gets another one imports by itself, as it does in a cluster that was not begun
    here.

    Args:
        workers: How many; at most one less than there are cores.

    Raises:
        ResourceError: Ray does not start.
    """
    # Named as Tune's files are, so that what a killed driver leaves goes with them.
    prefix = f"tune_sentcl_tune_{os.getpid()}_"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder, ending.taking(Path(folder)):
        cores = os.cpu_count() or 1
        for number in range(cores):
            warm = "warm" if number >= cores - workers else "cold"
            Path(folder, f"{number:06}-{warm}.free").touch()
        modules = [os.environ.get(_MODULES, ""), preload.__name__]
        settings = {
            _MODULES: ",".join(filter(None, modules)),
            preload.FOLDER: folder,
        }
        with _environment(settings), quiet(), cluster("local"):
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
