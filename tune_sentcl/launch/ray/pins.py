"""The libraries that this package asks for, at the versions that are installed here."""

import importlib.metadata

from packaging.requirements import Requirement
from packaging.version import Version

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.launch.ray.shipment import DISTRIBUTION

# A cluster runs its own Ray, and refuses an environment that brings another.
_CLUSTERS_OWN = frozenset({"ray"})


def pinned() -> list[str]:
    """`name==version` of every direct dependency but Ray, without what a build adds to a version.

    Raises:
        ConfigError: The package here names no dependencies, as one that was sent to a cluster.
    """
    wanted = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or []]
    names = [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    if not names:
        rule, move = (
            "the package here names no dependencies",
            "Submit from where pip installed it.",
        )
        raise ConfigError(Fault("--pip", "", "", rule, move))
    versions = {name: Version(importlib.metadata.version(name)) for name in names}
    return [f"{name}=={v.public}" for name, v in versions.items() if name not in _CLUSTERS_OWN]
