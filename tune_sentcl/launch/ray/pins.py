"""The libraries that this package asks for, at the versions that are installed here."""

import importlib.metadata
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.version import Version

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.launch.ray.shipment import DISTRIBUTION

# A cluster runs its own Ray, and refuses an environment that brings another.
_CLUSTERS_OWN = frozenset({"ray"})


def pinned(extras: Sequence[str] = ()) -> list[str]:
    """`name==version` of every direct dependency but Ray, without what a build adds to a version.

    Args:
        extras: Which of the package's extras count too.

    Raises:
        ConfigError: The package here names no dependencies, as one that was sent to a cluster, or
            an extra is not installed here.
    """
    wanted = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or []]
    kinds = [{"extra": extra} for extra in ("", *extras)]
    names = [r.name for r in wanted if r.marker is None or any(map(r.marker.evaluate, kinds))]
    if not names:
        rule, move = (
            "the package here names no dependencies",
            "Submit from where pip installed it.",
        )
        raise ConfigError(Fault("--pip", "", "", rule, move))
    try:
        versions = {name: Version(importlib.metadata.version(name)) for name in names}
    except importlib.metadata.PackageNotFoundError as error:
        rule = f"the cluster would get the version that is installed here, and {error.name} is not"
        move = f'Run: pip install "tune-sentcl[{",".join(extras)}]".'
        raise ConfigError(Fault("--pip", "", "", rule, move)) from None
    return [f"{name}=={v.public}" for name, v in versions.items() if name not in _CLUSTERS_OWN]
