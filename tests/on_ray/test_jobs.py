"""A study's jobs against a client that stands in for Ray's, and against other web servers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tune_sentcl.errors import StudyError, TuneSentclError
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.on_ray.submission import job_id

prepare_ray()

from ray.job_submission import JobDetails, JobStatus, JobType  # noqa: E402

from tune_sentcl.on_ray import jobs  # noqa: E402

STUDY, ADDRESS = "/disk/study", "http://head:8265"


class Client:
    """Keeps jobs as Ray does; `answers` are errors or statuses that come first."""

    def __init__(self, *jobs_before: str) -> None:
        self.jobs: dict[str, JobDetails] = {}
        self.sent: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.answers: list[Exception | str] = []
        self.log = ""
        self.stops = 0
        self.version: Exception | None = None
        for number, status in enumerate(jobs_before, 1):
            self.add(job_id(STUDY, number), status)

    def add(self, name: str, status: str, message: str = "as told") -> None:
        self.jobs[name] = JobDetails(
            type=JobType.SUBMISSION,
            submission_id=name,
            status=JobStatus(status),
            entrypoint="python",
            message=message,
        )

    def _answer(self, name: str) -> None:
        found = self.answers.pop(0) if self.answers else None
        if isinstance(found, Exception):
            raise found
        if found is not None:
            self.add(name, found)

    def list_jobs(self) -> list[JobDetails]:
        return list(self.jobs.values())

    def get_job_info(self, name: str) -> JobDetails:
        self._answer(name)
        return self.jobs[name]

    def get_job_logs(self, name: str) -> str:
        self.log += f"line {len(self.log.splitlines())}\n"
        return self.log

    def submit_job(self, **sent: Any) -> None:
        name = sent["submission_id"]
        if name in self.jobs:
            raise status(
                500, f"Traceback\nValueError: Job with submission_id {name} already exists."
            )
        folder = Path(sent["runtime_env"]["working_dir"])
        self.sent = sent
        self.files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        self.add(name, "PENDING")

    def stop_job(self, name: str) -> bool:
        self.stops += 1
        return True

    def get_version(self) -> str:
        if self.version is not None:
            raise self.version
        return "2.60.0"


def status(code: int, text: str) -> RuntimeError:
    return RuntimeError(f"Request failed with status code {code}: {text}.")


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("_QUICK_S", "_SLOW_S", "_STOP_POLL_S"):
        monkeypatch.setattr(jobs, name, 0.001)
    return monkeypatch


def of_study(patch: pytest.MonkeyPatch, client: Client) -> jobs.StudyJobs:
    patch.setattr(jobs, "_Client", lambda address: client)
    return jobs.StudyJobs(ADDRESS, STUDY)


def test_a_job_is_submitted_with_its_files_under_the_next_number(
    patch: pytest.MonkeyPatch,
) -> None:
    client = Client("FAILED", "SUCCEEDED")
    files = {"space.toml": b"x", "tune_sentcl/errors.py": b"y"}
    name = of_study(patch, client).submit("python -m x", files, {"env_vars": {"A": "1"}})
    assert name == job_id(STUDY, 3)
    assert client.files == files
    assert client.sent["entrypoint"] == "python -m x"
    assert client.sent["runtime_env"]["env_vars"] == {"A": "1"}
    assert client.sent["metadata"] == {"study": STUDY}


@pytest.mark.parametrize("running", ["PENDING", "RUNNING"])
def test_a_second_driver_is_refused_with_the_commands_that_help(
    patch: pytest.MonkeyPatch, running: str
) -> None:
    client = Client("SUCCEEDED", running)
    with pytest.raises(StudyError) as caught:
        of_study(patch, client).submit("python", {}, {})
    (fault,) = caught.value.faults
    assert fault.rule == f"{job_id(STUDY, 2)} is {running} on this cluster"
    assert f"tune-sentcl jobs logs {STUDY} --address {ADDRESS} --follow" in fault.next_move
    assert f"tune-sentcl jobs stop {STUDY}" in fault.next_move


def test_a_number_that_another_took_meanwhile_is_refused(patch: pytest.MonkeyPatch) -> None:
    client = Client()
    found = of_study(patch, client)
    seen = list(client.jobs.values())
    client.add(job_id(STUDY, 1), "RUNNING")
    patch.setattr(client, "list_jobs", lambda: seen)
    with pytest.raises(StudyError, match="run1 is RUNNING on this cluster"):
        found.submit("python", {}, {})
    assert client.sent == {}


def test_runs_of_other_studies_are_not_listed(patch: pytest.MonkeyPatch) -> None:
    client = Client("FAILED")
    client.add("raysubmit_1", "RUNNING")
    client.add(job_id("/disk/other", 1), "RUNNING")
    client.add(job_id(STUDY, 11), "STOPPED")
    client.add(job_id(STUDY, 2), "STOPPED")
    found = of_study(patch, client)
    assert list(found.runs()) == [1, 2, 11]
    assert found.latest().submission_id == job_id(STUDY, 11)


def test_a_study_without_a_job_is_named(patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(jobs.UnknownJobError, match="knows no job of this study"):
        of_study(patch, Client()).latest()


def test_a_stop_is_repeated_until_the_job_has_ended(patch: pytest.MonkeyPatch) -> None:
    """Ray does nothing about a job that is PENDING, and an answer may get lost."""
    client = Client("PENDING")
    client.answers = ["PENDING", ConnectionError("cut"), "RUNNING", "STOPPED"]
    found = of_study(patch, client)
    assert found.stop(found.latest(), 60).status == "STOPPED"
    assert client.stops == 4
    client.add(job_id(STUDY, 1), "RUNNING")
    assert found.stop(found.latest(), 0.01).status == "RUNNING"


def followed(found: jobs.StudyJobs) -> tuple[Any, str, list[str]]:
    written: list[str] = []
    said: list[str] = []
    ended = found.follow(job_id(STUDY, 1), written.append, said.append)
    return ended, "".join(written), said


def test_a_log_is_followed_over_broken_connections(patch: pytest.MonkeyPatch) -> None:
    client = Client("PENDING")
    cut = ConnectionError("cut")
    client.answers = ["PENDING", "RUNNING", cut, cut, "RUNNING", status(500, "away"), "FAILED"]
    ended, text, said = followed(of_study(patch, client))
    assert ended.status == "FAILED"
    assert text == client.log and len(text.splitlines()) == 4
    assert [line.partition(" ")[0] for line in said] == [
        job_id(STUDY, 1),  # is PENDING
        *("--address:", "the") * 2,
    ]
    assert "The job continues; trying again." in said[1]


def test_a_log_that_cannot_be_read_any_more_ends_with_its_job(patch: pytest.MonkeyPatch) -> None:
    client = Client("SUCCEEDED")

    def away(name: str) -> str:
        raise status(500, "the agent is away")

    patch.setattr(client, "get_job_logs", away)
    ended, text, said = followed(of_study(patch, client))
    assert (ended.status, text, len(said)) == ("SUCCEEDED", "", 1)


@pytest.mark.parametrize(
    ("error", "version", "words"),
    [
        (status(404, "no job"), None, "this cluster does not know the job"),
        (status(413, "too large"), None, "refused: too large"),
        (
            status(500, "Traceback\nKeyError: 'x'"),
            None,
            "job agent does not (status 500, Key",
        ),
        (ConnectionError("cut"), None, "the Ray dashboard answers, but the head's job agent"),
        (
            ConnectionError("cut"),
            ConnectionError("cut"),
            "nothing answers there (ConnectionError)",
        ),
        (status(502, "proxy"), status(502, "proxy"), "another program answers there (status 502"),
    ],
)
def test_an_error_says_whether_the_dashboard_or_its_agent_is_silent(
    patch: pytest.MonkeyPatch, error: Exception, version: Exception | None, words: str
) -> None:
    client = Client()
    client.version = version

    def away() -> list[JobDetails]:
        raise error

    patch.setattr(client, "list_jobs", away)
    with pytest.raises(TuneSentclError) as caught:
        of_study(patch, client).runs()
    assert words in str(caught.value)


class Page(BaseHTTPRequestHandler):
    """A web server: a status and a text for each path; None answers when the test is over."""

    pages: dict[str, tuple[int, str] | None]
    over: threading.Event

    def do_GET(self) -> None:
        found = self.pages.get(self.path, self.pages.get(""))
        if found is None:
            self.over.wait()
            found = (500, "")
        self.send_response(found[0])
        self.end_headers()
        self.wfile.write(found[1].encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(pages: dict[str, tuple[int, str] | None]) -> Iterator[str]:
    over = threading.Event()
    handler = type("Handler", (Page,), {"pages": pages, "over": over})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()


VERSION = (200, json.dumps({"version": "4", "ray_version": "2.60.0", "ray_commit": ""}))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ((200, "<html>"), "another program answers there (JSONDecodeError)"),
        ((404, ""), "another program answers there (RuntimeError)"),
        ((500, ""), "another program answers there (status 500)"),
    ],
)
def test_a_server_that_is_no_dashboard_is_named(page: tuple[int, str], why: str) -> None:
    with serving({"": page}) as address, pytest.raises(jobs.NoAnswerError) as caught:
        jobs.StudyJobs(address, STUDY)
    assert caught.value.faults[0].rule == f"must be the address of a Ray dashboard, but {why}"


def test_an_agent_that_is_late_is_named_and_the_given_address_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "_TIMES", (10.0, 0.5))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")
    with serving({"/api/version": VERSION, "": None}) as address:
        found = jobs.StudyJobs(address, STUDY)
        with pytest.raises(jobs.NoAnswerError, match=r"job agent does not \(no answer in 0.5 s"):
            found.runs()


def test_a_proxy_is_not_asked_for_a_dashboard_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nothing listens
    monkeypatch.delenv("no_proxy", raising=False)
    with serving({"/api/version": VERSION, "": (200, "[]")}) as address:
        with pytest.raises(jobs.NoAnswerError):
            jobs.StudyJobs(address, STUDY)
        prepare_ray()
        assert jobs.StudyJobs(address, STUDY).runs() == {}
