"""A study's jobs: what is sent, and a client that stands in for Ray's or for another server."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tune_sentcl.errors import ResourceError, StudyError
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.space import load_space

prepare_ray()

import ray  # noqa: E402
from ray.job_submission import JobDetails, JobStatus, JobType  # noqa: E402

from tune_sentcl.on_ray import jobs  # noqa: E402
from tune_sentcl.on_ray.jobs import (  # noqa: E402
    SPACE_FILE,
    job_id,
    runtime_environment,
    write_working_directory,
)

STUDY, ADDRESS = "/disk/study", "http://head:8265"
PACKAGE = Path(jobs.__file__).parents[1]
SMOKE = load_space("smoke")


class Client:
    """Keeps jobs as Ray does; `answers` are errors or statuses that come first."""

    def __init__(self, *jobs_before: str) -> None:
        self.jobs: dict[str, JobDetails] = {}
        self.sent: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.answers: list[Exception | str] = []
        self.log = ""
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


def status(code: int, text: str) -> RuntimeError:
    return RuntimeError(f"Request failed with status code {code}: {text}.")


def of_study(patch: pytest.MonkeyPatch, client: Client) -> jobs.StudyJobs:
    patch.setattr(jobs, "_POLL_S", 0.001)
    patch.setattr(jobs, "_Client", lambda address: client)
    return jobs.StudyJobs(ADDRESS, STUDY)


def test_a_job_is_submitted_with_its_files_under_the_next_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client("FAILED", "SUCCEEDED")
    client.add(job_id(STUDY, 11), "STOPPED")
    for other in ("raysubmit_1", job_id("/disk/other", 20)):
        client.add(other, "RUNNING")
    found = of_study(monkeypatch, client)
    assert found.submit("python -m x", SMOKE, {"env_vars": {"A": "1"}}) == job_id(STUDY, 12)
    assert {SPACE_FILE, "tune_sentcl/on_ray/jobs.py"} <= client.files.keys()
    assert client.sent["entrypoint"] == "python -m x"
    assert client.sent["runtime_env"]["env_vars"] == {"A": "1"}


@pytest.mark.parametrize("running", ["PENDING", "RUNNING"])
def test_a_second_driver_is_refused_with_the_commands_that_help(
    monkeypatch: pytest.MonkeyPatch, running: str
) -> None:
    client, name = Client("SUCCEEDED", running), job_id(STUDY, 2)
    with pytest.raises(StudyError) as caught:
        of_study(monkeypatch, client).submit("python", SMOKE, {})
    (fault,) = caught.value.faults
    assert fault.rule == f"{name} is {running} on this cluster"
    for command in ("logs --follow", "stop"):
        assert f"ray job {command} {name} --address {ADDRESS}." in fault.next_move


def test_a_number_that_another_took_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    found = of_study(monkeypatch, client)
    client.add(job_id(STUDY, 1), "RUNNING")
    monkeypatch.setattr(client, "list_jobs", list)
    with pytest.raises(StudyError, match="run1 was submitted just now on this cluster"):
        found.submit("python", SMOKE, {})
    assert client.sent == {}


def followed(found: jobs.StudyJobs) -> tuple[Any, str, list[str]]:
    written: list[str] = []
    said: list[str] = []
    ended = found.follow(job_id(STUDY, 1), written.append, said.append)
    return ended, "".join(written), said


def test_a_log_is_followed_over_broken_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("PENDING")
    cut = ConnectionError("cut")
    client.answers = ["PENDING", "RUNNING", cut, cut, "RUNNING", status(500, "away"), "FAILED"]
    ended, text, said = followed(of_study(monkeypatch, client))
    assert ended.status == "FAILED"
    assert text == client.log and len(text.splitlines()) == 4
    assert said == 2 * [f"{ADDRESS} does not answer. The job continues; trying again."]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (status(404, "Job x does not exist"), "does not exist)"),
        (ray.exceptions.AuthenticationError("Authentication failed"), "refuses the token"),
    ],
)
def test_a_job_that_nobody_can_follow_any_more_is_given_up(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    """As after a restart of the head: else it would be asked for ever."""
    client = Client("RUNNING")
    client.answers = ["RUNNING", error]
    with pytest.raises(ResourceError, match=re.escape(words)):
        followed(of_study(monkeypatch, client))


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
    ("pages", "why"),
    [
        ({"": (200, "<html>")}, "JSONDecodeError: "),
        ({"": (404, "")}, "RuntimeError: Version check returned 404"),
        ({"": (500, "")}, "HTTPError: 500 Server Error"),
        (
            {"/api/version": VERSION, "": (500, "Traceback\nKeyError: 1")},
            "RuntimeError: KeyError: 1",
        ),
        ({"/api/version": VERSION, "": None}, "ReadTimeout: "),
    ],
)
def test_a_server_that_is_no_dashboard_or_is_late_is_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, tuple[int, str] | None], why: str
) -> None:
    monkeypatch.setattr(jobs, "_TIMES", (10.0, 0.5))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")  # the given one wins
    with serving(pages) as address, pytest.raises(ResourceError) as caught:
        jobs.StudyJobs(address, STUDY).submit("python", SMOKE, {})
    (fault,) = caught.value.faults
    assert fault.value == address and "\n" not in str(fault)
    assert fault.rule.startswith(f"a Ray dashboard must answer there ({why}")


def test_a_proxy_is_not_asked_for_a_dashboard_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nothing listens
    monkeypatch.delenv("no_proxy", raising=False)
    with serving({"/api/version": VERSION}) as address:
        with pytest.raises(ResourceError):
            jobs.StudyJobs(address, STUDY)
        prepare_ray()
        jobs.StudyJobs(address, STUDY)


def test_what_is_sent_runs_where_it_lies_and_holds_nothing_else(tmp_path: Path) -> None:
    write_working_directory(SMOKE, tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert (tmp_path / SPACE_FILE).read_text() == f'name = "smoke"\n{SMOKE.text}'
    (metadata,) = files - {SPACE_FILE} - {n for n in files if n.startswith("tune_sentcl/")}
    assert re.fullmatch(r"tune_sentcl-[0-9.]+\.dist-info/METADATA", metadata)
    sources = {path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".csv", ".js")}
    assert {f"tune_sentcl/{path.relative_to(PACKAGE)}" for path in sources} <= files
    assert not [name for name in files if "__pycache__" in name or "/." in name]
    code = (
        "import importlib.metadata as m, tune_sentcl; from tune_sentcl.space import load_space; "
        "print(tune_sentcl.__file__, load_space('space.toml').name, m.version('tune-sentcl'), "
        "'torch' in str(m.requires('tune-sentcl')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    version = metadata.removeprefix("tune_sentcl-").partition(".dist-info")[0]
    assert done.stdout == f"{tmp_path / 'tune_sentcl/__init__.py'} smoke {version} True\n"


def test_the_environment_pins_what_is_installed_here_and_holds_no_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    environment = runtime_environment(pip=True, extras=())
    pins = dict(pin.split("==") for pin in environment["pip"]["packages"])
    assert {"torch", "optuna", "transformers"} <= set(pins)
    assert not {"ray", "pytest", "nltk"} & set(pins)
    assert not any("+" in version for version in pins.values())
    assert "s3cr3t" not in str(environment)


@pytest.mark.parametrize(
    ("study", "other"),
    [
        ("/disk/studies/One", "/disk/studies/One/"),
        ("/disk/studies/One", "//disk/studies//One"),
        ("/disk/studies/One", "/disk/./x/../studies/One"),
        ("/disk/studies/One", "file:///disk/studies/One"),
        ("/a/my one", "file:///a/my%20one"),
        ("s3://bucket/studies/My study", "S3://Bucket//studies/./My study/"),
    ],
)
def test_spellings_of_a_location_are_one_study(study: str, other: str) -> None:
    assert job_id(other, 1) == job_id(study, 1)
    assert job_id(other, 1) != job_id(f"{study}/x", 1)


@pytest.mark.parametrize(
    "study",
    ["../../etc", "/a/../..", "/a/$(reboot)", "/a/; rm -r ~", "/a/b\n--x", "s3://b/../c", "/é"],
)
def test_a_jobs_id_is_a_plain_word(study: str) -> None:
    assert re.fullmatch(r"tune-sentcl-[a-z0-9-]+-run1", job_id(study, 1))
