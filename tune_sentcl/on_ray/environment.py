"""Environment variables that must be set before Ray is imported, and versions. Imports no Ray."""

import functools
import importlib.metadata
import os
import platform
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from packaging.requirements import Requirement

DISTRIBUTION = "tune-sentcl"
AUTH_MODE = "RAY_AUTH_MODE"
_TOKEN, _TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"

_SETTINGS = {
    # This package prints progress and stores results by itself.
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Ctrl-C must raise in this process, and SIGTERM must not print a C++ stack trace.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    # A trial that failed reports no metric.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # The searcher limits the trials that wait for a worker, so Tune's limit must not delay any.
    "TUNE_MAX_PENDING_TRIALS_PG": "200",
    # Nothing reads Tune's snapshots, so Tune writes one an hour at most.
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    # Under `uv run`, Ray would otherwise start each worker by the same `uv run` command.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    # Ray would otherwise send usage statistics.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray must not hide the GPUs from tasks that request none, such as the check of a node.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Threads of the library `tokenizers` would compete with the other trials' threads.
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare_ray() -> None:
    """Set the variables that the user has not set; call it before the first import of Ray."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    direct = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    if direct != "*":
        # The driver must reach Ray on this machine without a proxy.
        hosts = dict.fromkeys([*filter(None, direct.split(",")), "localhost", "127.0.0.1"])
        os.environ["no_proxy"] = ",".join(hosts)


@contextmanager
def set_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, and restore its earlier value at the end."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


@contextmanager
def temporary_token(address: str) -> Iterator[None]:
    """Give a local cluster a token of its own, unless the user has configured a token.

    Otherwise Ray would write a permanent token to the user's home, and every later cluster of the
    user would require that token without notice.
    """
    has_token = any(map(os.environ.get, (AUTH_MODE, _TOKEN, _TOKEN_PATH)))
    if address != "local" or has_token or (Path.home() / ".ray/auth_token").exists():
        yield
        return
    os.environ[_TOKEN] = _token_of_this_process()
    try:
        yield
    finally:
        for name in (_TOKEN, AUTH_MODE):  # Ray itself sets AUTH_MODE when it starts
            os.environ.pop(name, None)


@functools.cache
def _token_of_this_process() -> str:
    """A single token for all clusters of this process, because Ray's core reads a token once."""
    return secrets.token_hex(32)


def dependencies(extras: Sequence[str] = ()) -> list[str]:
    """Names of this package's direct dependencies, including those of the given extras.

    The list is empty if the package has no metadata, for example if it runs from bare sources.
    """
    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    environments = [{"extra": extra} for extra in ("", *extras)]
    wanted = map(Requirement, texts)
    return [
        r.name for r in wanted if r.marker is None or any(map(r.marker.evaluate, environments))
    ]


def installed_versions(extras: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, this package and its dependencies, in this process."""
    return versions_of((DISTRIBUTION, *dependencies(extras)))


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and packages in this process; a missing package is left out."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
