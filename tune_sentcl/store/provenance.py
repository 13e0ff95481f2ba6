"""Provenance of a study: library versions and git commit."""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from tune_sentcl.store.schema import LIBRARIES


@cache
def library_versions() -> Mapping[str, str]:
    """Versions by the names in `LIBRARIES`; libraries that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        if name != "python":
            try:
                found[name] = importlib.metadata.version(name.replace("_", "-"))
            except importlib.metadata.PackageNotFoundError:
                continue
    return MappingProxyType(found)


def git_commit() -> str | None:
    """The commit checked out in the working directory, with `-dirty` if a tracked file changed.

    Returns:
        40 hexadecimal digits and the suffix; None outside a checkout or without git.
    """
    commit = _git("rev-parse", "--verify", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    if not commit or changes is None:
        return None
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str | None:
    # Without optional locks, `git status` does not write into the user's checkout.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
