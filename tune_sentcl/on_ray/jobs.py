"""Run a study's search as a job of a Ray cluster, through Ray's job client."""

import hashlib
import importlib.metadata
import importlib.resources
import json
import logging
import posixpath
import re
import shutil
import tempfile
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from packaging.version import Version
from ray.job_submission import JobDetails, JobSubmissionClient

from tune_sentcl.errors import Fault, ResourceError, StudyError
from tune_sentcl.on_ray.cluster import authentication_error
from tune_sentcl.on_ray.environment import (
    DISTRIBUTION,
    dependencies,
    installed_versions,
    set_variable,
)
from tune_sentcl.plugins import Plugin
from tune_sentcl.space import Space
from tune_sentcl.store.files import normalized_location

SPACE_FILE = "space.toml"
"""The search space's file in the job's working directory; the file's text has the space's name."""

_PACKAGE = "tune_sentcl"
# Ray kills a stopped job after 3 s by default, but a search may need longer to store its state.
_STOP_S = 10

for _logger in (
    # The first two report uploads, the third reports the ends of logs.
    *("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"),
    "ray.dashboard.modules.job.sdk",
):
    logging.getLogger(_logger).setLevel(logging.WARNING)


def job_id(study: str, run: int | str) -> str:
    """A job's id from the study and the number of the run, from 1; a URL's spelling is ignored."""
    location = normalized_location(study)
    name = posixpath.basename(urlsplit(location).path).lower()
    word = re.sub(r"[^a-z0-9]+", "-", name)[:32].strip("-") or "study"
    digest = hashlib.sha256(location.encode()).hexdigest()[:8]
    return f"{DISTRIBUTION}-{word}-{digest}-run{run}"


def runtime_environment(*, pip: bool, extras: Sequence[str]) -> dict[str, Any]:
    """Ray's runtime environment for a job, without the working directory.

    It contains no variables of this machine, because Ray shows environments to all users of the
    cluster. With `pip`, Ray installs this package's dependencies and those of `extras`, in the
    versions that are installed here, but keeps the cluster's version of Ray.
    """
    environment: dict[str, Any] = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_S)}}
    if pip:
        versions = installed_versions(extras)
        environment["pip"] = [
            # Package indexes do not know local versions such as 2.13.0+cu130, so only the public
            # part is stated.
            f"{name}=={Version(versions[name]).public}" if name in versions else name
            for name in dependencies(extras)
            if name != "ray"
        ]
    return environment


def write_working_directory(space: Space, folder: Path) -> None:
    """Write a job's working directory: this package, its metadata, the search space and plugins.

    Ray puts the directory first on `sys.path` of the driver and of every worker, so this package
    replaces a copy in the cluster's image. The study's version columns and the comparison of
    versions read the metadata.
    """
    skipped = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(str(importlib.resources.files(_PACKAGE)), folder / _PACKAGE, ignore=skipped)
    with suppress(importlib.metadata.PackageNotFoundError):
        # If the package runs from bare sources, no metadata is installed.
        installed = importlib.metadata.distribution(DISTRIBUTION)
        metadata = folder / f"{_PACKAGE}-{installed.version}.dist-info/METADATA"
        metadata.parent.mkdir()
        metadata.write_text(installed.read_text("METADATA") or "", encoding="utf-8")
    named = "" if "name" in tomllib.loads(space.text) else f"name = {json.dumps(space.name)}\n"
    (folder / SPACE_FILE).write_text(f"{named}{space.text}", encoding="utf-8")
    for plugin in space.plugins:
        own = folder / plugin_path(plugin)
        for module, source in plugin.sources.items():
            path = own.parent / module.replace(".", "/")
            path = path / "__init__.py" if source.is_package else path.with_suffix(".py")
            path = own if module == plugin.module else path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.code)


def plugin_path(plugin: Plugin) -> str:
    """The value of --plugin in the job's command: the path of a file in the job, or a name."""
    return f"plugins/{plugin.fingerprint}/{plugin.name}" if plugin.sources else plugin.name


class StudyJobs:
    """The jobs of one study on one cluster.

    Every method raises ResourceError if no Ray dashboard answers, or if it refuses the token or
    the request.
    """

    def __init__(self, address: str, study: str) -> None:
        """Connect to the dashboard at `address`: http or https, with or without a path.

        Raises:
            ResourceError: `ray[default]` is not installed here; see also the class.
        """
        self._address, self._study = address, study
        # Ray's job client prefers this variable to its argument, so both get the same address.
        with self._translated_errors(), set_variable("RAY_API_SERVER_ADDRESS", address):
            self._client = JobSubmissionClient(address)

    def submit(self, command: str, space: Space, environment: Mapping[str, Any]) -> str:
        """Submit a run of the search and return the job's id; `command` is quoted for a shell.

        Ray accepts each id once, so of two submissions at the same moment it refuses one.

        Raises:
            StudyError: A run is pending or running, or was submitted at the same moment.
        """
        prefix, last = job_id(self._study, ""), 0
        with self._translated_errors():
            jobs = self._client.list_jobs()
        for job in jobs:
            name = job.submission_id or ""
            if name.startswith(prefix):
                if not job.status.is_terminal():
                    raise self._second_driver(name, f"is {job.status.value}")
                last = max(last, int(name.removeprefix(prefix)))
        name = f"{prefix}{last + 1}"
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as folder:
            write_working_directory(space, Path(folder))
            sent = {**environment, "working_dir": folder}
            with self._translated_errors():
                try:
                    self._client.submit_job(
                        entrypoint=command, submission_id=name, runtime_env=sent
                    )
                except RuntimeError as error:
                    if "already exists" in str(error):
                        raise self._second_driver(name, "was submitted just now") from None
                    raise
        return name

    async def log(self, job: str) -> AsyncIterator[str]:
        """Yield a job's log piece by piece, until the job ends."""
        with self._translated_errors():
            async for text in self._client.tail_job_logs(job):
                yield text

    def details(self, job: str) -> JobDetails:
        """The status of a job."""
        with self._translated_errors():
            return self._client.get_job_info(job)

    def _second_driver(self, job: str, state: str) -> StudyError:
        rule = f"{job} {state} on this cluster"
        move = f"Follow or stop the job: ray job logs --follow {job}, ray job stop {job}."
        return StudyError(Fault("--study", value=self._study, rule=rule, move=move))

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except StudyError:
            # This is caught first, because StudyError is a ValueError.
            raise
        except ray.exceptions.AuthenticationError as error:
            refused = "Authentication failed" in str(error)
            why = "the cluster refuses the token that was sent" if refused else "no token was sent"
            raise authentication_error(self._address, why) from None
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            text = str(error).strip(" .\n")
            if "ray[default]" in text:
                move = 'Run pip install "tune-sentcl[cluster]".'
                fault = Fault("ray", rule="Ray's job client needs ray[default]", move=move)
            else:
                # The text may be a traceback, whose last line is the error.
                last = (text.splitlines() or [""])[-1][-300:]
                rule = (
                    f"a Ray dashboard must answer at this address ({type(error).__name__}: {last})"
                )
                move = (
                    "Correct the address (http://HEAD:8265), start the cluster, or repeat the "
                    "command."
                )
                fault = Fault("--address", value=self._address, rule=rule, move=move)
            raise ResourceError(fault) from None
