"""A study's jobs on a Ray cluster, by way of Ray's job client.

Each run of a search is a job of its own under an id that comes from the study, and Ray takes an id
once. So of two that submit at the same moment one wins, and a second driver is never begun.
"""

import logging
import os
import re
import shlex
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import requests
from ray.job_submission import JobDetails, JobSubmissionClient

from tune_sentcl.errors import Fault, ResourceError, StudyError, TuneSentclError
from tune_sentcl.launch.ray.job_names import job_id, run_number
from tune_sentcl.launch.ray.preflight import no_entrance
from tune_sentcl.launch.ray.shipment import SPACE_FILE
from tune_sentcl.store.provenance import mask_text

ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_TIMES = (10.0, 60.0)  # seconds to connect, and between two bytes; Ray's client waits for ever
_OVERRIDING = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_MARK = "submitted_by"
_STATUS = re.compile(r"Request failed with status code (\d+): ?(.*)", re.DOTALL)
_POLL_S = 1.0

for _talker in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
    logging.getLogger(_talker).setLevel(logging.WARNING)  # they tell of each upload


class NoAnswerError(ResourceError):
    """The dashboard does not answer, or not now."""


class UnknownJobError(ResourceError):
    """The cluster knows no such job, perhaps not any more."""


@dataclass(frozen=True)
class Run:
    """One run of a study's search on a cluster.

    Attributes:
        number: Counted from 1.
        job: The id of its job.
        status: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
        started: Unix time in seconds at which it was submitted.
        ended: The same for its end; None before.
        message: What Ray says of it; secrets are hidden.
        command: The command that it runs.
        exit_code: The driver's; None before its end.
    """

    number: int
    job: str
    status: str
    started: float | None
    ended: float | None
    message: str
    command: str
    exit_code: int | None

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or another."""
        return self.status in ENDED


@dataclass(frozen=True)
class Order:
    """What a cluster is asked to run.

    Attributes:
        study: A URL, or an absolute path on the cluster.
        command: The command, quoted for a shell.
        files: Contents of the wheel and the space by file name.
        environment: The rest of Ray's runtime environment.
    """

    study: str
    command: str
    files: Mapping[str, bytes] = field(repr=False)
    environment: Mapping[str, Any] = field(default_factory=dict)


class Jobs:
    """The jobs of one cluster."""

    def __init__(self, address: str) -> None:
        """Connect to a dashboard.

        Args:
            address: `http://HEAD:8265`, https and a path's prefix allowed.

        Raises:
            NoAnswerError: No Ray dashboard answers there.
            ResourceError: It wants another token, or `ray[default]` is not installed here.
        """
        self._address = address
        with _address_as_given():
            try:
                self._client = _Client(address)
            except ray.exceptions.AuthenticationError as error:
                raise _no_entrance(address, error) from None
            except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
                if "ray[default]" in str(error):
                    raise no_job_client() from None
                raise _no_dashboard(address, error) from None

    def runs(self, study: str) -> list[Run]:
        """The runs of a study that the cluster knows, the latest last."""
        with self._asking():
            listed = self._client.list_jobs()
        numbers = ((run_number(study, job.submission_id), job) for job in listed)
        found = [_run(number, job) for number, job in numbers if number is not None]
        return sorted(found, key=lambda run: run.number)

    def latest(self, study: str) -> Run:
        """The latest run of a study.

        Raises:
            UnknownJobError: There is none.
        """
        runs = self.runs(study)
        if not runs:
            rule = "this cluster knows no job of this study"
            move = "Check the address and the study, or submit it."
            raise UnknownJobError(Fault(mask_text(study), "", "", rule, move))
        return runs[-1]

    def again(self, run: Run) -> Run:
        """A run as it is now.

        Raises:
            UnknownJobError: The cluster does not know it any more.
        """
        with self._asking():
            return _run(run.number, self._client.get_job_info(run.job))

    def logs(self, run: Run) -> str:
        """All that a run has printed so far."""
        with self._asking():
            return str(self._client.get_job_logs(run.job))

    def submit(self, order: Order, number: int) -> Run:
        """Have the cluster run a search.

        Args:
            order: The search.
            number: Of the run; one that the study has not had.

        Raises:
            StudyError: Somebody else has submitted that run at the same moment.
        """
        name, mark = job_id(order.study, number), uuid.uuid4().hex
        try:
            with self._asking(), tempfile.TemporaryDirectory(prefix="tune_sentcl_") as folder:
                self._client.submit_job(
                    entrypoint=order.command,
                    submission_id=name,
                    runtime_env=_packed(order, Path(folder)),
                    metadata={"study": mask_text(order.study), _MARK: mark},
                )
        except TuneSentclError as error:
            # An answer may have been lost on its way, or asked for twice by a proxy.
            job = self._find(name)
            if job is None:
                raise
            if (job.metadata or {}).get(_MARK) != mark:
                raise in_the_way(_run(number, job), order.study, self._address) from error
        with self._asking():
            return _run(number, self._client.get_job_info(name))

    def stop(self, run: Run, seconds: float) -> Run:
        """Ask a run to end, and see that it does.

        Ray takes the wish for one that is not running yet, and forgets it; so it is told again
        as soon as it runs.

        Args:
            run: The run.
            seconds: How long to wait.

        Returns:
            The run as it was seen last; look whether it is over.
        """
        end, asked, now = time.monotonic() + seconds, "", self.again(run)
        while not now.over and time.monotonic() < end:
            with suppress(NoAnswerError):
                if now.status != asked:
                    with self._asking():
                        self._client.stop_job(run.job)
                    asked = now.status
                time.sleep(_POLL_S)
                now = self.again(run)
        return now

    def _find(self, name: str) -> JobDetails | None:
        try:
            with self._asking():
                return self._client.get_job_info(name)
        except UnknownJobError:
            return None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn what Ray's client raises into errors of ours."""
        try:
            yield
        except ray.exceptions.AuthenticationError as error:
            raise _no_entrance(self._address, error) from None
        except OSError as error:  # those of `requests` are of this kind
            raise self._unanswered(error) from None
        except (RuntimeError, ValueError) as error:
            raise _refused(self._address, error) from None

    def _unanswered(self, error: OSError) -> NoAnswerError:
        """Say whether the dashboard itself answers now; its agent on the head runs the jobs."""
        try:
            self._client.get_version()
        except (OSError, RuntimeError, ValueError) as now:
            return _no_dashboard(self._address, now)
        return _no_agent(self._address, error)


class _Client(JobSubmissionClient):
    """Ray's, with an end to its patience: a connection that was cut would hold it for ever."""

    def _do_request(self, method: str, endpoint: str, **more: Any) -> Any:
        return super()._do_request(method, endpoint, **{"timeout": _TIMES, **more})


def _run(number: int, job: JobDetails) -> Run:
    return Run(
        number=number,
        job=str(job.submission_id),
        status=str(job.status.value),
        started=None if job.start_time is None else job.start_time / 1000,
        ended=None if not job.end_time else job.end_time / 1000,
        message=mask_text(job.message or ""),
        command=mask_text(job.entrypoint),
        exit_code=job.driver_exit_code,
    )


def _packed(order: Order, folder: Path) -> dict[str, Any]:
    """The runtime environment, with its files where Ray's client takes them from."""
    sent = folder / "sent"
    sent.mkdir()
    modules = []
    for name, content in order.files.items():
        path = (sent if name == SPACE_FILE else folder) / name
        path.write_bytes(content)
        if path.parent == folder:
            modules.append(str(path))
    return {**order.environment, "working_dir": str(sent), "py_modules": modules}


def commands(study: str, address: str) -> dict[str, str]:
    """The commands that follow and stop a study's latest run."""
    where = shlex.join([mask_text(study), "--address", mask_text(address)])
    return {
        "follow": f"tune-sentcl jobs logs {where} --follow",
        "stop": f"tune-sentcl jobs stop {where}",
    }


def in_the_way(run: Run, study: str, address: str) -> StudyError:
    """Say that a study's search is on its way already."""
    rule = f"run {run.number} of this study is {run.status} on this cluster"
    told = commands(study, address)
    move = f"Follow it: {told['follow']}. Or stop it: {told['stop']}."
    return StudyError(Fault("--study", "", mask_text(study), rule, move))


def no_job_client() -> ResourceError:
    """Say that Ray is installed here without its job client."""
    rule = "Ray's job client needs more than ray[tune]"
    move = 'Run pip install "tune-sentcl[cluster]".'
    return ResourceError(Fault("ray", "", "", rule, move))


def _no_dashboard(address: str, error: Exception) -> NoAnswerError:
    if isinstance(error, requests.ReadTimeout):
        why = f"what listens there gave no answer in {_TIMES[1]:g} s"
    elif isinstance(error, ConnectionError | requests.ConnectionError):
        why = f"nothing answers there ({_said(error)})"
    else:
        why = f"another program answers there ({_said(error)})"
    rule = f"must be the address of a Ray dashboard, but {why}"
    move = "Correct it (http://HEAD:8265), start the cluster, or open a way to its dashboard."
    return NoAnswerError(Fault("--address", "", mask_text(address), rule, move))


def _no_agent(address: str, error: Exception) -> NoAnswerError:
    late = isinstance(error, requests.ReadTimeout)
    why = f"no answer in {_TIMES[1]:g} s" if late else _said(error)
    rule = f"the Ray dashboard answers, but the head's agent for jobs does not ({why})"
    move = "Read dashboard_agent.log in Ray's logs on the head, and repeat the command."
    return NoAnswerError(Fault("--address", "", mask_text(address), rule, move))


def _said(error: Exception) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"status {error.response.status_code}"
    match = _STATUS.search(str(error))
    if match is None:
        return type(error).__name__
    last = match[2].strip().splitlines()[-1:]  # of a traceback, the last line says it
    return ", ".join([f"status {match[1]}", *(mask_text(text[:200]) for text in last)])


def _no_entrance(address: str, error: Exception) -> ResourceError:
    refused = "Authentication failed" in str(error)
    why = "it refuses the token that was sent" if refused else "no token was sent"
    return no_entrance(mask_text(address), why)


def _refused(address: str, error: Exception) -> TuneSentclError:
    match = _STATUS.search(str(error))
    code = int(match[1]) if match else 0
    if code == 404:
        rule, move = "this cluster knows no such job", "Was it started anew? Submit it again."
        return UnknownJobError(Fault("--address", "", mask_text(address), rule, move))
    if code >= 500 or match is None:
        return _no_agent(address, error)
    return TuneSentclError(f"{mask_text(address)} refused: {mask_text(match[2][:2000])}")


@contextmanager
def _address_as_given() -> Iterator[None]:
    """Ray's client prefers these variables to the address that it is given."""
    kept = {name: os.environ.pop(name) for name in _OVERRIDING if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
