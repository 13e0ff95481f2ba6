"""The id, the files and the runtime environment of a submitted job. Imports no Ray."""

import hashlib
import importlib.metadata
import importlib.resources
import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version

from tune_sentcl.config import CHECKPOINTS, source_names
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.on_ray.preflight import DISTRIBUTION, dependencies
from tune_sentcl.space import Space
from tune_sentcl.space.space import spaces_folder
from tune_sentcl.store.study_urls import normalized_location

SPACE_FILE = "space.toml"
"""The space's file in the job's working directory; the space's name is in its text."""

MOST_BYTES = 20_000_000
_PACKAGE = "tune_sentcl"
_LISTED = 5  # files that an error message names
_LONGEST_WORD, _DIGEST = 32, 8  # characters of a job id
_MAY_BE_FILES = (*CHECKPOINTS, "data.source", "evaluation.own")
_STOP_S = 10  # Ray kills a stopped job after 3 s by default; a search takes up to 7 s to end
_SETUP_S = 300
_PIP_S = 14 * 60  # Ray gives up a job that has not started after 15 minutes
# Ray's defaults, and a timeout, so that pip reports an index that hangs.
_PIP_OPTIONS = ["--disable-pip-version-check", "--no-cache-dir", "--timeout=15", "--retries=1"]


def job_id(study: str, run: int | str) -> str:
    """The id of a run of a study's search; Ray accepts an id once, so it refuses a second driver.

    Spellings of one location give one id: repeated slashes, `.` and `..`, `file://`, the case of a
    host. Runs are counted from 1.
    """
    location = normalized_location(study)
    word = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(urlsplit(location).path).lower())
    word = word[:_LONGEST_WORD].strip("-") or "study"
    digest = hashlib.sha256(location.encode()).hexdigest()[:_DIGEST]
    return f"{DISTRIBUTION}-{word}-{digest}-run{run}"


def run_of(study: str, submission_id: str | None) -> int | None:
    """The number of a study's run; None if the submission belongs to another study."""
    _, _, number = (submission_id or "").rpartition("-run")
    return int(number) if number.isdecimal() and submission_id == job_id(study, number) else None


def working_directory(space: Space) -> dict[str, bytes]:
    """The files of a job by relative path: this package as it is here, and the space's text.

    Ray puts the directory first on `sys.path` of the driver and of every worker, so this package
    replaces one that the cluster's image holds. The package's metadata goes along, because the
    study's version columns and the comparison of versions read it.
    """
    try:
        installed = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        rule = "must be installed, because submit sends its name and version"
        raise ConfigError(Fault(_PACKAGE, "", "", rule, "Run pip install -e .")) from None
    package = Path(str(importlib.resources.files(_PACKAGE)))
    files = {
        f"{into}/{path.relative_to(folder).as_posix()}": path
        for into, folder in (
            (_PACKAGE, package),
            (f"{_PACKAGE}/search_spaces", spaces_folder()),  # beside the package in a checkout
        )
        for path in _files_below(folder)
    }
    named = "" if "name" in tomllib.loads(space.text) else f"name = {json.dumps(space.name)}\n"
    text = f"{named}{space.text}".encode()
    sizes = {name: path.stat().st_size for name, path in files.items()}
    _check_size({**sizes, space.source: len(text)})
    metadata = (installed.read_text("METADATA") or "").encode()
    return {
        SPACE_FILE: text,
        f"{_PACKAGE}-{installed.version}.dist-info/METADATA": metadata,
        **{name: path.read_bytes() for name, path in sorted(files.items())},
    }


def runtime_environment(*, pip: bool, extras: Sequence[str]) -> dict[str, Any]:
    """Ray's runtime environment without the working directory.

    It contains no variable of this machine, because Ray shows environments to all users of the
    cluster. With `pip` Ray installs this package's dependencies, and those of `extras`, at the
    versions that are installed here.
    """
    environment: dict[str, Any] = {
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_S)},
        "config": {"setup_timeout_seconds": _PIP_S if pip else _SETUP_S},
    }
    if pip:
        packages = list(_pinned(extras))
        environment["pip"] = {"packages": packages, "pip_install_options": _PIP_OPTIONS}
    return environment


def check_sent(space: Space) -> None:
    """Check that a space holds no path relative to a local folder."""
    if faults := list(_relative_paths(space)):
        raise ConfigError(faults)


def _files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = PurePosixPath(path.relative_to(folder)).parts
        skipped = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not skipped:
            yield path


def _check_size(sizes: Mapping[str, int]) -> None:
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:_LISTED]
        listed = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest)
        rule = f"must be {MOST_BYTES / 1e6:.0f} MB or below; the largest: {listed}"
        move = "Move data files out of the package's folder."
        raise ConfigError(Fault("what is sent", "", f"{total / 1e6:.1f} MB", rule, move))


def _pinned(extras: Sequence[str]) -> Iterator[str]:
    """`name==version` of every direct dependency but Ray, without a build's local version.

    Ray refuses an environment with another version of Ray than the cluster's.
    """
    for name in dependencies(extras):
        if name == "ray":
            continue
        try:
            yield f"{name}=={Version(importlib.metadata.version(name)).public}"
        except importlib.metadata.PackageNotFoundError:
            rule = f"installs the versions that are installed here, and {name} is not"
            move = f'Run: pip install "{DISTRIBUTION}[{",".join(extras)}]".'
            raise ConfigError(Fault("--pip", "", "", rule, move)) from None


def _relative_paths(space: Space) -> Iterator[Fault]:
    from tune_sentcl.data.rows.sources import JOINED, SOURCES

    rule = "is a relative path, and the job's working directory holds no file of yours"
    move = "Give an absolute path on the cluster, or the name on the hub."
    names = {"toy", "minilm", "sts-b", *JOINED, *SOURCES}  # the same on every machine
    for key in _MAY_BE_FILES:
        values = {str(config.dotted().get(key)) for config in space.configurations}
        for span in space.ranges:
            values |= {str(choice) for choice in span.choices if span.key == key}
        if key == "evaluation.own":
            entries = {e for config in space.configurations for e in config.evaluation.own}
            values = {own.path for own in own_sources(sorted(entries)) if own.path}
        elif key == "data.source":
            values = {name for value in values for name in source_names(value)}
        for value in sorted(values - names):
            is_path = key == "evaluation.own" or _is_path(value.removeprefix("random:"), space)
            if is_path and not Path(value.removeprefix("random:")).is_absolute():
                yield Fault(space.source, key, repr(value), rule, move)


def _is_path(value: str, space: Space) -> bool:
    """Whether a name means a file or a folder, and not a data set or an encoder of the hub.

    A folder beside the space's file counts too: users take its name for a relative path.
    """
    from tune_sentcl.data.tables import SUFFIXES

    path = Path(value).expanduser()
    beside = Path(space.source).parent / path
    written = value.startswith(("~", ".")) or path.suffix in SUFFIXES
    return written or path.exists() or beside.exists()
