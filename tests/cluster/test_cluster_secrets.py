"""A search that runs as a job, on an object store: who else may look sees no token and no key."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import TOKEN, Cluster, cluster
from processes import descendants, processes, wait_until
from s3_server import make_bucket, serving, variables

from tune_sentcl.errors import StudyError
from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.long]

KEY, SECRET = "AKIAGUARDSTESTKEY000", "s3cr3tGUARDSabcXYZ0123456789"
SESSION = "s3ss10nGUARDStoken456"
SECRETS = (TOKEN, KEY, SECRET, SESSION)
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
def keys() -> Iterator[dict[str, str]]:
    """A store, and the variables by which it is reached."""
    with serving() as url:
        make_bucket(url)
        yield {
            **variables(url),
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": SESSION,
            "no_proxy": "127.0.0.1,127.0.0.2",
        }


@pytest.fixture(scope="module")
def head(keys: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("head"), cpus=2, **keys) as found:
        yield found


def told(head: Cluster, *words: str) -> str:
    command = [sys.executable, "-m", "tune_sentcl", *words, "--address", head.dashboard]
    done = subprocess.run(
        command, env=head.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def ended(url: str) -> int:
    try:
        return len(Study.read(url).ended())
    except StudyError:
        return 0


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def test_keys_and_tokens_are_seen_by_nobody(
    head: Cluster, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    url, seeds = "s3://bucket/studies/one", ",".join(map(str, range(60)))
    said = told(head, "submit", "smoke", "--study", url, "--seeds", seeds)
    shown: dict[str, str] = {"submit": said}
    wait_until(lambda: ended(url) >= 2, "rows of a search")
    commands = {command for _, command in processes().values()}
    assert any(re.search(r"python.* -m tune_sentcl search", command) for command in commands)
    assert any("ray::" in command for command in commands)
    shown["processes"] = "\n".join(commands)
    assert environments(head)
    assert head.statuses(url) == ["RUNNING"]
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
    for name, text in shown.items():
        assert leaks(text) == [], name
    files = [path for path in head.temp.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 10
    for path in [*files, *head.home.rglob("*.log")]:
        assert leaks(path.read_bytes().decode(errors="replace")) == [], path
    study = Study.read(url)
    tables = [t.to_pylist() for t in (study.trials(), study.scores(), study.curves())]
    manifest = study.files.read_bytes("study.json")
    assert manifest is not None and leaks(manifest.decode()) == []
    assert tables[0] and leaks(str(tables)) == []


def environments(head: Cluster) -> list[int]:
    """Processes whose command line anybody may read, and whose variables nobody else may."""
    found = []
    for pid in descendants(head.head.process.pid):
        path = Path(f"/proc/{pid}/environ")
        try:
            mode = path.stat().st_mode
        except OSError:  # it has ended just now
            continue
        assert mode & 0o077 == 0
        found.append(pid)
    return found
