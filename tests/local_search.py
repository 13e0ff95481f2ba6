"""Searches of the command line without Ray, whose start takes 10 s."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tune_sentcl import launch
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import SearchOutcome


@contextmanager
def searches_without_ray() -> Iterator[None]:
    """Within this, `search` takes the local launcher, unless it is given an address."""
    usual = launch.search

    def without_ray(*given: Any, options: SearchOptions, **more: Any) -> SearchOutcome:
        launcher = options.launcher if options.address else "local"
        return usual(*given, options=replace(options, launcher=launcher), **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "search", without_ray)
        yield
