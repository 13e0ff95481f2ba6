"""The checks of a search alone, against the cluster that it would run on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import prepare
from tune_sentcl.launch.ray.environment import prepare_ray
from tune_sentcl.launch.worker import study_path
from tune_sentcl.space import load_space

if TYPE_CHECKING:
    from tune_sentcl.launch.ray.survey import Survey


def check_search(
    space: str | Path,
    study: str | Path | None,
    data: str | Path | None,
    overrides: Mapping[str, Any],
    seeds: Sequence[int] | None,
    options: SearchOptions,
) -> "Survey":
    """Look at a cluster for a search; nothing is run, and nothing is left anywhere.

    Args:
        space: A shipped name, or a TOML file.
        study: A folder or an object store's URL, which need not be there; None: no place is
            looked at.
        data: The data root; None takes TUNE_SENTCL_DATA.
        overrides: Dotted keys that replace the space's values in every trial.
        seeds: Seeds of every configuration; None takes the space's.
        options: What a trial takes, and where.

    Returns:
        The nodes, and what is wrong with them.

    Raises:
        BadInputError: Something asked for cannot be wherever it runs, or there is no cluster.
    """
    prepared = prepare(load_space(space, overrides), data, seeds, options)
    prepare_ray()
    from tune_sentcl.launch.ray.cluster import cluster, quiet
    from tune_sentcl.launch.ray.survey import survey

    with quiet(), cluster(options.ray_address):
        return survey(prepared, "" if study is None else study_path(study))
