"""Searches handed to a real Ray head, with its dashboard, a token and the keys of a store."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clusters import OTHER, TOKEN, Cluster, cluster
from processes import descendants, processes, wait_until
from s3_server import make_bucket, serving, variables
from sweeps import rows

from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.long]

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAGUARDSTESTKEY000",
    "AWS_SECRET_ACCESS_KEY": "s3cr3tGUARDSabcXYZ0123456789",
    "AWS_SESSION_TOKEN": "s3ss10nGUARDStoken456",
}
# A job of any command, submitted by the library when its input ends.
SUBMIT = """
import asyncio, json, sys
from tune_sentcl.errors import TuneSentclError
from tune_sentcl.on_ray.environment import prepare_ray
prepare_ray()
from tune_sentcl.on_ray.jobs import StudyJobs
from tune_sentcl.space import load_space
address, study, command, environment = sys.argv[1:]
jobs = StudyJobs(address, study)
print("ready", flush=True)
sys.stdin.read()
try:
    job = jobs.submit(command, load_space("smoke"), json.loads(environment))
except TuneSentclError as error:
    sys.exit(str(error))
print(job, flush=True)
async def follow():
    async for text in jobs.log(job):
        print(text, end="")
asyncio.run(follow())
ended = jobs.details(job)
print(ended.status, ended.message)
"""


LIST = """
import sys
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient(sys.argv[1])
for job in client.list_jobs():
    print(job, client.get_job_logs(job.submission_id))
from ray.util.state import list_actors, list_workers
for listed in (list_actors, list_workers):
    print(listed(address=sys.argv[1], detail=True, limit=1000))
"""


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """The variables by which an object store is reached."""
    with serving() as url:
        make_bucket(url)
        yield {**variables(url), **KEYS, "no_proxy": "127.0.0.1,127.0.0.2"}


@pytest.fixture(scope="module")
def head(store: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    more: dict[str, Any] = store
    with cluster(tmp_path_factory.mktemp("head"), cpus=2, **more) as cluster_of_one:
        yield cluster_of_one


def run(
    head: Cluster, *words: object, address: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tune_sentcl", *map(str, words)]
    done = subprocess.run(
        [*command, "--address", address or head.dashboard],
        env=head.environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "INFO" not in done.stderr  # Ray's own words
    assert leaks(done.stdout + done.stderr) == []
    return done


def leaks(text: str) -> list[str]:
    return [secret for secret in (TOKEN, OTHER, *KEYS.values()) if secret in text]


def submitting(
    head: Cluster, study: Path, line: str, **environment: object
) -> "subprocess.Popen[str]":
    """A process that is about to submit a job; it does when its input ends."""
    words = [head.dashboard, str(study), line, json.dumps(environment)]
    started = subprocess.Popen(
        [sys.executable, "-c", SUBMIT, *words],
        env=head.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", started.communicate()
    return started


def statuses(study: Path) -> list[str]:
    return [row["status"] for row in rows(study)]


def test_a_search_runs_from_what_was_sent_to_its_last_row(head: Cluster, tmp_path: Path) -> None:
    study = tmp_path / "study"
    done = run(head, "submit", "smoke", "--study", study, "--set", "data.limit=64", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert statuses(study) == ["finished"] * 2
    for words in ("submitted: tune-sentcl-study-", "follow: ray job logs --follow", "resume: "):
        assert words in done.stdout
    assert "2 trials ended in this run" in done.stdout
    again = run(head, "submit", "smoke", "--study", study, "--set", "data.limit=64", "--follow")
    assert again.returncode == 0  # a run that has ended blocks none
    assert "0 trials ended in this run" in again.stdout
    assert head.statuses(study) == ["SUCCEEDED", "SUCCEEDED"]
    assert "0 trials ended in this run" in head.ray_job("logs", study, 2)


def test_a_second_submit_is_refused_and_a_stop_is_seen_to_its_end(
    head: Cluster, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    words = ("submit", "smoke", "--study", study, "--seeds", ",".join(map(str, range(40))))
    assert run(head, *words).returncode == 0
    wait_until(lambda: len(rows(study)) >= 2, "rows of a search")
    drivers = [p for p, c in descendants(head.head.process.pid).items() if "m tune_sentcl" in c]
    assert drivers
    second = run(head, *words)
    assert second.returncode == 2
    assert "-run1 is RUNNING on this cluster" in second.stderr
    assert re.search(r"ray job stop tune-sentcl-\S+-run1", second.stderr)
    assert head.statuses(study) == ["RUNNING"]
    assert "was stopped" in head.ray_job("stop", study)
    assert not set(drivers) & set(descendants(head.head.process.pid))
    assert not [text for _, text in processes().values() if str(study) in text]
    held = len(rows(study))
    again = run(head, "submit", "smoke", "--study", study, "--follow")
    assert again.returncode == 0, again.stderr
    assert len(rows(study)) >= held
    assert head.statuses(study) == ["STOPPED", "SUCCEEDED"]


def test_of_two_that_submit_at_once_one_wins(head: Cluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    line = f"sh -c 'echo began >> {marks}'"
    pair = [submitting(head, tmp_path, line) for _ in range(2)]
    for one in pair:  # both are connected, and wait for this
        assert one.stdin is not None
        one.stdin.close()
        one.stdin = None
    ended = [(*one.communicate(), one.returncode) for one in pair]
    (won,) = [end for end in ended if end[2] == 0]
    (lost,) = [end for end in ended if end[2] != 0]
    assert won[0].startswith("tune-sentcl-")
    assert re.search(r"-run1 (is [A-Z]+|was submitted just now) on this cluster", lost[1])
    assert marks.read_text() == "began\n"
    assert head.statuses(tmp_path) == ["SUCCEEDED"]


@pytest.mark.parametrize(
    ("command", "variables", "rule"),
    [
        ("submit", {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}, "no token was sent"),
        ("submit", {"RAY_AUTH_TOKEN": OTHER}, "the cluster refuses the token that was sent"),
        ("search", {"RAY_AUTH_TOKEN": ""}, "no token was found to send"),
    ],
)
def test_who_lacks_the_token_is_refused_in_a_sentence(
    head: Cluster, tmp_path: Path, command: str, variables: dict[str, str], rule: str
) -> None:
    at = {"submit": head.dashboard, "search": head.gcs}[command]
    done = run(head, command, "smoke", "--study", tmp_path, address=at, **variables)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"this cluster requires its token, but {rule}. Set" in done.stderr


def test_keys_and_tokens_are_seen_by_nobody(
    head: Cluster, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    url, seeds = "s3://bucket/studies/one", ",".join(map(str, range(60)))
    assert run(head, "submit", "smoke", "--study", url, "--seeds", seeds).returncode == 0
    wait_until(lambda: len(rows(url)) >= 2, "rows of a search")
    commands = {command for _, command in processes().values()}
    assert any(re.search(r"python.* -m tune_sentcl search", command) for command in commands)
    assert any("ray::" in command for command in commands)
    shown = {"processes": "\n".join(commands)}
    only_this_user_reads_variables(head)
    for command in ("logs", "stop"):
        shown[command] = head.ray_job(command, url)
    listed = subprocess.run(
        [sys.executable, "-c", LIST, head.dashboard],
        env=head.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "tune-sentcl-one-" in listed.stdout and "ActorState" in listed.stdout
    shown["listing"] = listed.stdout + listed.stderr
    files = [path for path in head.temp.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10
    for path in [*files, *head.home.rglob("*.log")]:
        shown[str(path)] = path.read_bytes().decode(errors="replace")
    study = Study.read(url)
    manifest = study.files.read_bytes("study.json")
    assert manifest is not None
    shown["manifest"] = manifest.decode()
    shown["tables"] = str(
        [t.to_pylist() for t in (study.trials(), study.scores(), study.curves())]
    )
    assert [name for name, text in shown.items() if leaks(text)] == []


def only_this_user_reads_variables(head: Cluster) -> None:
    """Anybody may read a process's command line."""
    for pid in descendants(head.head.process.pid):
        with suppress(FileNotFoundError):  # it has ended just now
            assert Path(f"/proc/{pid}/environ").stat().st_mode & 0o077 == 0
