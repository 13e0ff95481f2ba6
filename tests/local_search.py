"""Searches of the command line without Ray, whose start takes 10 s."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tune_sentcl import launch
from tune_sentcl.tuning.search_run import SearchOutcome


@contextmanager
def searches_without_ray() -> Iterator[None]:
    """Within this, `search` takes the local launcher, unless it is given an option of Ray."""
    usual: Callable[..., SearchOutcome] = launch.run_search

    def without_ray(*given: Any) -> SearchOutcome:
        *others, options, watcher = given
        needs_ray = options.address or options.memory_per_trial
        return usual(*others, options if needs_ray else options.without_ray(), watcher)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "run_search", without_ray)
        yield
