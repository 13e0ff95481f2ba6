"""A study's jobs on a Ray cluster, through Ray's job client.

The job id of a run is made of the study and the run's number. Ray accepts an id once: of two
submissions at the same moment it refuses one, so no second driver starts.
"""

import logging
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
import requests
from ray.job_submission import JobDetails, JobSubmissionClient

from tune_sentcl.errors import Fault, ResourceError, StudyError, TuneSentclError
from tune_sentcl.on_ray.preflight import authentication_error
from tune_sentcl.on_ray.submission import job_id, run_of

_TIMES = (10.0, 60.0)  # seconds to connect and between two bytes; Ray's client sets no limits
_OVERRIDING = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_STATUS = re.compile(r"Request failed with status code (\d+): ?(.*)", re.DOTALL)
_STOP_POLL_S = 1.0
_QUICK_S, _SLOW_S = 0.5, 10.0
_BYTES_A_SECOND = 500_000  # most bytes to request; Ray sends the whole log each time
_LAST_TRIES = 5

for _logger in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
    logging.getLogger(_logger).setLevel(logging.WARNING)  # they log each upload


class NoAnswerError(ResourceError):
    """The dashboard, or the head's job agent behind it, does not answer at present."""


class UnknownJobError(ResourceError):
    """The cluster does not know the job, or has forgotten it."""


class StudyJobs:
    """The jobs of one study on one cluster."""

    def __init__(self, address: str, study: str) -> None:
        """Connect to the dashboard at `address`: http or https, with or without a path.

        Raises:
            NoAnswerError: No Ray dashboard answers there.
            ResourceError: The dashboard refuses the token, or `ray[default]` is not installed
                here.
        """
        self._address, self._study = address, study
        with _without_overriding_variables():
            try:
                self._client = _Client(address)
            except ray.exceptions.AuthenticationError as error:
                raise _authentication_error(address, error) from None
            except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
                if "ray[default]" in str(error):
                    raise _no_job_client() from None
                raise _no_dashboard(address, error) from None

    def runs(self) -> dict[int, JobDetails]:
        """The runs of the study that the cluster knows, by number, the latest last."""
        with self._translated_errors():
            listed = self._client.list_jobs()
        numbers = ((run_of(self._study, job.submission_id), job) for job in listed)
        found = {number: job for number, job in numbers if number is not None}
        return dict(sorted(found.items()))

    def latest(self) -> JobDetails:
        """The latest run; raises UnknownJobError if the cluster knows no run."""
        runs = self.runs()
        if not runs:
            rule = "this cluster knows no job of this study"
            move = "Check the address and the study, or submit it."
            raise UnknownJobError(Fault(self._study, "", "", rule, move))
        return runs[max(runs)]

    def logs(self, job: str) -> str:
        """The whole log of a job so far."""
        with self._translated_errors():
            return str(self._client.get_job_logs(job))

    def submit(
        self, command: str, files: Mapping[str, bytes], environment: Mapping[str, Any]
    ) -> str:
        """Submit a run of the search and return the job's id.

        `command` is quoted for a shell. `files` holds the job's working directory by relative
        path. A StudyError says that a run is pending or running, or was submitted at the same
        moment.
        """
        runs = self.runs()
        if runs and not runs[max(runs)].status.is_terminal():
            raise self._already_running_error(runs[max(runs)])
        name = job_id(self._study, 1 + max(runs, default=0))
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as folder:
            for file, content in files.items():
                path = Path(folder, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            try:
                with self._translated_errors():
                    self._client.submit_job(
                        entrypoint=command,
                        submission_id=name,
                        runtime_env={**environment, "working_dir": folder},
                        metadata={"study": self._study},
                    )
            except TuneSentclError as error:
                if "already exists" in str(error):
                    raise self._already_running_error(self._job_info(name)) from None
                raise
        return name

    def stop(self, job: JobDetails, seconds: float) -> JobDetails:
        """Ask a job to stop and wait for its end, `seconds` at most; returns its last known state.

        Ray ignores the request while a job is PENDING, so it is repeated.
        """
        name, end = str(job.submission_id), time.monotonic() + seconds
        while not job.status.is_terminal() and time.monotonic() < end:
            with suppress(NoAnswerError), self._translated_errors():
                self._client.stop_job(name)
            time.sleep(_STOP_POLL_S)
            with suppress(NoAnswerError):
                job = self._job_info(name)
        return job

    def follow(
        self, job: str, write: Callable[[str], None], say: Callable[[str], None]
    ) -> JobDetails:
        """Print a job's log until the job ends; survives broken connections.

        The log is read whole each time, and its new part goes to `write`. Ray's stream of a log
        may end while the job runs, so only the job's status decides. `say` receives messages about
        the job and the connection.
        """
        found: JobDetails | None = None
        printed, failures, pause, waiting = 0, 0, _QUICK_S, ""
        while True:
            try:
                found = self._job_info(job)  # before the log, so that the last log is complete
                if found.status == "PENDING" and found.message != waiting:
                    waiting = str(found.message)
                    say(f"{job} is PENDING: {waiting}")
                text = self.logs(job)
            except NoAnswerError as error:
                if not failures:
                    say(f"{error} The job continues; trying again.")
                failures += 1
            else:
                if failures:
                    say("the dashboard answers again")
                pause = _QUICK_S if len(text) > printed else pause
                write(text[printed:])
                failures, printed = 0, len(text)
            readable = failures < _LAST_TRIES
            if found and found.status.is_terminal() and not (failures and readable):
                return found
            time.sleep(max(pause, printed / _BYTES_A_SECOND))
            pause = min(1.5 * pause, _SLOW_S)

    def commands(self) -> dict[str, str]:
        """The commands that follow and stop the latest run."""
        where = shlex.join([self._study, "--address", self._address])
        return {
            "follow": f"tune-sentcl jobs logs {where} --follow",
            "stop": f"tune-sentcl jobs stop {where}",
        }

    def _job_info(self, job: str) -> JobDetails:
        with self._translated_errors():
            return self._client.get_job_info(job)

    def _already_running_error(self, job: JobDetails) -> StudyError:
        rule = f"{job.submission_id} is {job.status} on this cluster"
        shown = self.commands()
        move = f"Follow it: {shown['follow']}. Or stop it: {shown['stop']}."
        return StudyError(Fault("--study", "", self._study, rule, move))

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn errors of Ray's client into this package's errors."""
        try:
            yield
        except ray.exceptions.AuthenticationError as error:
            raise _authentication_error(self._address, error) from None
        except (OSError, RuntimeError, ValueError) as error:  # errors of `requests` are OSErrors
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> TuneSentclError:
        match, where = _STATUS.search(str(error)), self._address
        code = int(match[1]) if match else 0
        if code == 404:
            rule = "this cluster does not know the job"
            move = "If the cluster was restarted, submit the search again."
            return UnknownJobError(Fault("--address", "", where, rule, move))
        if match and (code < 500 or "already exists" in match[2]):
            return TuneSentclError(f"{where} refused: {match[2][-2000:]}")
        try:
            self._client.get_version()
        except (OSError, RuntimeError, ValueError) as now:
            return _no_dashboard(self._address, now)
        return _no_agent(self._address, error)


class _Client(JobSubmissionClient):
    """Ray's client with time limits: without them it hangs after a lost connection."""

    def _do_request(self, method: str, endpoint: str, **more: Any) -> Any:
        return super()._do_request(method, endpoint, **{"timeout": _TIMES, **more})


def _no_job_client() -> ResourceError:
    rule = "Ray's job client needs more than ray[tune]"
    move = 'Run pip install "tune-sentcl[cluster]".'
    return ResourceError(Fault("ray", "", "", rule, move))


def _authentication_error(address: str, error: Exception) -> ResourceError:
    refused = "Authentication failed" in str(error)
    why = "it refuses the token that was sent" if refused else "no token was sent"
    return authentication_error(address, why)


def _no_dashboard(address: str, error: Exception) -> NoAnswerError:
    if isinstance(error, requests.ReadTimeout):
        why = f"the server there gave no answer in {_TIMES[1]:g} s"
    elif isinstance(error, ConnectionError | requests.ConnectionError):
        why = f"nothing answers there ({_shown(error)})"
    else:
        why = f"another program answers there ({_shown(error)})"
    rule = f"must be the address of a Ray dashboard, but {why}"
    move = "Correct it (http://HEAD:8265), start the cluster, or make its dashboard reachable."
    return NoAnswerError(Fault("--address", "", address, rule, move))


def _no_agent(address: str, error: Exception) -> NoAnswerError:
    late = isinstance(error, requests.ReadTimeout)
    why = f"no answer in {_TIMES[1]:g} s" if late else _shown(error)
    rule = f"the Ray dashboard answers, but the head's job agent does not ({why})"
    move = "Read dashboard_agent.log in Ray's logs on the head, and repeat the command."
    return NoAnswerError(Fault("--address", "", address, rule, move))


def _shown(error: Exception) -> str:
    """A short text of an error of Ray's client."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"status {error.response.status_code}"
    match = _STATUS.search(str(error))
    if match is None:
        return type(error).__name__
    last = match[2].strip().splitlines()[-1:]  # the last line of a traceback
    return ", ".join([f"status {match[1]}", *(text[:200] for text in last)])


@contextmanager
def _without_overriding_variables() -> Iterator[None]:
    """Hide the variables that take precedence over the address in Ray's client."""
    kept = {name: os.environ.pop(name) for name in _OVERRIDING if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
