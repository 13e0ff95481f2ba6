"""Ray's start, and a worker's imports, while the driver makes its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tune_sentcl.config import TrialConfig, is_toy
from tune_sentcl.data.root import data_root
from tune_sentcl.errors import BadInputError
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.tuning.search_options import SearchOptions

_MOST = 4
"""Workers that import ahead on a large machine, where a trial may need a GPU, of which are few."""


@contextmanager
def ray_ahead(
    space: Space, study: str, data: str | Path | None, options: SearchOptions
) -> Iterator[None]:
    """A search within this finds a cluster of this machine's own up, where it will need one.

    Where that is not sure (another cluster, a study that may hold all already, something that may
    be refused on a closer look), Ray starts when the search comes to it. Nothing here imports
    torch, which takes as long as all else of a start; so what the driver imports within runs
    beside the same imports of the first trial's worker. Nothing that is checked is left out: the
    search looks at everything itself, and a cluster that was begun for nothing ends with this.

    Args:
        space: What will be searched.
        study: Its study.
        data: The data root; None takes TUNE_SENTCL_DATA.
        options: How.

    Raises:
        ConfigError: The options do not make sense, alone or for the space.
    """
    options.check(space)
    if not (_runs_here(study, options) and _can_be_read(space, data)):
        yield
        return
    prepare_ray()
    from tune_sentcl.on_ray.warming import warm_cluster

    refused = None
    with warm_cluster(*_warm(options)):
        try:
            yield
        except BadInputError as error:  # no error of Ray's, whose logs would stay
            refused = error
    if refused is not None:
        raise refused


def _runs_here(study: str, options: SearchOptions) -> bool:
    """Whether Ray is sure to run trials on this machine, if the space can be read.

    Options that may be refused, or ask for what this machine may lack, are left to the search.
    """
    usual = SearchOptions()
    asked = ("launcher", "learn_from", "objectives", "track", "accelerator", "memory_per_trial")
    if any(getattr(options, name) != getattr(usual, name) for name in asked):
        return False
    if options.ray_address != "local" or study.startswith("memory:") or options.gpus_per_trial:
        return False
    there = options.cpus_per_trial <= (os.cpu_count() or 1)
    return there and not StudyFiles.at(study).exists(MANIFEST)


def _can_be_read(space: Space, data: str | Path | None) -> bool:
    """Whether at first sight every configuration finds its rows and its encoder."""
    root = data_root(data)
    rows = root is not None and root.is_dir()
    found = map(_has_encoder, space.configurations)
    return all(found) and (rows or all(is_toy(c.data.source) for c in space.configurations))


def _has_encoder(config: TrialConfig) -> bool:
    name = config.encoder.checkpoint
    return name in ("toy", "minilm") or Path(name).expanduser().is_dir()


def _warm(options: SearchOptions) -> tuple[int, int]:
    """How many workers import ahead, and how many of them side by side.

    No more than there will be trials at a time. One core is left to the driver, which imports the
    same meanwhile and times steps for its estimate on as many cores as a trial has; where these
    are all, none imports.
    """
    cores = os.cpu_count() or 1
    spare = cores - options.cpus_per_trial
    if spare <= 0:
        return 0, 1
    trials = min(cores // options.cpus_per_trial, options.max_concurrent or _MOST, _MOST)
    return trials, min(spare, trials)
