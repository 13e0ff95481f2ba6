"""Searches of the command line without Ray, whose start takes 10 s."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tune_sentcl import launch
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.search import SearchOutcome


@contextmanager
def searches_without_ray() -> Iterator[None]:
    """Within this, `search` takes the local launcher, unless it is given an option of Ray."""
    usual = launch.search

    def without_ray(*given: Any, options: SearchOptions, **more: Any) -> SearchOutcome:
        needs_ray = options.address or options.memory_per_trial
        options = options if needs_ray else options.without_ray()
        run: Callable[..., SearchOutcome] = inspect.unwrap(usual)
        return run(*given, options=options, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "search", without_ray)
        yield
