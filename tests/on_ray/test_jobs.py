"""A study's jobs: what is sent, and a client that stands in for Ray's or for another server."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tune_sentcl.errors import ResourceError, StudyError
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.space import load_space

prepare_ray()

import ray  # noqa: E402
from ray.job_submission import JobStatus  # noqa: E402

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
    """Keeps jobs as Ray does; `log` is one of pieces and errors."""

    def __init__(self, *jobs_before: str) -> None:
        self.jobs: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}
        self.files: set[str] = set()
        self.log: list[Exception | str] = []
        for number, status in enumerate(jobs_before, 1):
            self.add(job_id(STUDY, number), status)

    def add(self, name: str, status: str) -> None:
        self.jobs[name] = SimpleNamespace(submission_id=name, status=JobStatus(status))

    def list_jobs(self) -> list[Any]:
        return list(self.jobs.values())

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        for piece in self.log:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def submit_job(self, **sent: Any) -> None:
        name = sent["submission_id"]
        if name in self.jobs:
            raise failure(500, f"Traceback\nValueError: Job {name} already exists.")
        folder = Path(sent["runtime_env"]["working_dir"])
        self.sent = sent
        self.files = {str(path.relative_to(folder)) for path in folder.rglob("*")}


def failure(code: int, text: str) -> RuntimeError:
    return RuntimeError(f"Request failed with status code {code}: {text}.")


def of_study(patch: pytest.MonkeyPatch, client: Client) -> jobs.StudyJobs:
    patch.setattr(jobs, "JobSubmissionClient", lambda address: client)
    return jobs.StudyJobs(ADDRESS, STUDY)


def test_a_job_is_submitted_with_its_files_under_the_next_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client("FAILED", "SUCCEEDED")
    client.add(job_id(STUDY, 11), "STOPPED")
    for other in ("raysubmit_1", job_id("/disk/other", 20)):
        client.add(other, "RUNNING")
    submitted = of_study(monkeypatch, client).submit("python -m x", SMOKE, {"env_vars": {}})
    assert submitted == job_id(STUDY, 12)
    assert {SPACE_FILE, "tune_sentcl/on_ray/jobs.py"} <= client.files
    assert client.sent["entrypoint"] == "python -m x"
    assert client.sent["runtime_env"]["env_vars"] == {}


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
        assert f"ray job {command} {name}" in fault.move


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (failure(404, "Job x does not exist"), "does not exist)"),
        (ray.exceptions.AuthenticationError("Authentication failed"), "refuses the token"),
    ],
)
def test_a_log_that_breaks_off_is_an_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    client, printed = Client("RUNNING"), list[str]()
    client.log = ["one", error]

    async def follow() -> None:
        async for text in of_study(monkeypatch, client).log(job_id(STUDY, 1)):
            printed.append(text)

    with pytest.raises(ResourceError, match=re.escape(words)):
        asyncio.run(follow())
    assert printed == ["one"]


@contextmanager
def serving(pages: dict[str, tuple[int, str]]) -> Iterator[str]:
    """A server with a status and a text for each path."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path) or pages[""]
            self.send_response(page[0])
            self.end_headers()
            self.wfile.write(page[1].encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
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
    ],
)
def test_a_server_that_is_no_dashboard_or_is_late_is_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, tuple[int, str]], why: str
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")  # the given one wins
    with serving(pages) as address, pytest.raises(ResourceError) as caught:
        jobs.StudyJobs(address, STUDY).submit("python", SMOKE, {})
    (fault,) = caught.value.faults
    assert fault.value == address and "\n" not in str(fault)
    assert fault.rule.startswith(f"a Ray dashboard must answer at this address ({why}")


def test_what_is_sent_runs_where_it_lies_and_holds_nothing_else(tmp_path: Path) -> None:
    write_working_directory(SMOKE, tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
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
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True)
    version = metadata.removeprefix("tune_sentcl-").partition(".dist-info")[0]
    assert printed == f"{tmp_path / 'tune_sentcl/__init__.py'} smoke {version} True\n"


def test_the_environment_pins_what_is_installed_here_and_holds_no_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    environment = runtime_environment(pip=True, extras=())
    pins = dict(pin.split("==") for pin in environment["pip"])
    assert {"torch", "optuna", "transformers"} <= set(pins)
    assert not {"ray", "pytest", "nltk"} & set(pins)
    assert not any("+" in version for version in pins.values())
    assert "s3cr3t" not in str(environment)


@pytest.mark.parametrize(
    ("study", "other"),
    [
        ("/disk/studies/One", "/disk/./x/../studies//One/"),
        ("/a/my one", "file:///a/my%20one"),
        ("s3://bucket/studies/My study", "S3://Bucket//studies/./My study/"),
    ],
)
def test_spellings_of_a_location_are_one_study(study: str, other: str) -> None:
    assert job_id(other, 1) == job_id(study, 1)
    assert job_id(other, 1) != job_id(f"{study}/x", 1)


@pytest.mark.parametrize("study", ["../../etc", "/a/$(reboot); rm -r ~", "/a/b\n--x", "/é"])
def test_a_jobs_id_is_a_plain_word(study: str) -> None:
    assert re.fullmatch(r"tune-sentcl-[a-z0-9-]+-run1", job_id(study, 1))
