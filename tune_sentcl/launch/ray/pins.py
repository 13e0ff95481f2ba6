"""The libraries that this package asks for, at the versions that are installed here."""

import importlib.metadata
import platform
from collections.abc import Sequence
from contextlib import suppress

from packaging.requirements import Requirement
from packaging.version import Version

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.launch.ray.shipment import DISTRIBUTION

# A cluster runs its own Ray, and refuses an environment that brings another.
_CLUSTERS_OWN = frozenset({"ray"})


def needed(extras: Sequence[str] = ()) -> list[str]:
    """The names of this package's direct dependencies; none where it runs from its sources.

    Args:
        extras: Which of the package's extras count too.
    """
    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = [Requirement(text) for text in texts]
    kinds = [{"extra": extra} for extra in ("", *extras)]
    return [r.name for r in wanted if r.marker is None or any(map(r.marker.evaluate, kinds))]


def own_versions(extras: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, this package and all that it needs, as this process has them.

    Args:
        extras: As for `needed`.
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in (DISTRIBUTION, *needed(extras)):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def pinned(extras: Sequence[str] = ()) -> list[str]:
    """`name==version` of every direct dependency but Ray, without what a build adds to a version.

    Args:
        extras: Which of the package's extras count too.

    Raises:
        ConfigError: The package here names no dependencies, as one that was sent to a cluster, or
            an extra is not installed here.
    """
    names = needed(extras)
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
