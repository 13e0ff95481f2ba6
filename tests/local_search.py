"""Searches of the command line without Ray, whose start takes 10 s."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tune_sentcl.cli import search_commands
from tune_sentcl.tuning.search_options import SearchOptions


@contextmanager
def searches_without_ray() -> Iterator[None]:
    """Within this, `search` takes the local launcher, unless it is given an address."""
    usual = search_commands.search_options

    def without_ray(given: Mapping[str, Any]) -> SearchOptions:
        options = usual(given)
        searches = "save_every" in given  # an option that only `search` has
        local = searches and not options.address
        return replace(options, launcher="local") if local else options

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_commands, "search_options", without_ray)
        yield
