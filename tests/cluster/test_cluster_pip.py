"""`--pip`: the cluster installs what a search needs, or says in pip's words why it cannot."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster, cluster, free_ports, light_python

from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.long]

SUBMIT = """
import json, sys
from tune_sentcl.on_ray.environment import prepare_ray
prepare_ray()
from tune_sentcl.on_ray.jobs import StudyJobs
from tune_sentcl.space import load_space
address, study, environment = sys.argv[1:]
jobs = StudyJobs(address, study)
job = jobs.submit("true", load_space("smoke"), json.loads(environment))
ended = jobs.follow(job, print, print)
print(ended.status, ended.message)
"""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose package index takes connections and never answers."""
    folder = tmp_path_factory.mktemp("pip")
    (port,) = free_ports(1)
    with (
        socket.create_server(("127.0.0.1", port)),
        cluster(
            folder,
            python=light_python(folder / "python"),
            PIP_INDEX_URL=f"http://127.0.0.1:{port}/simple",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
        ) as found,
    ):
        yield found


def run(head: Cluster, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=head.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_there_already_is_not_fetched(head: Cluster, tmp_path: Path) -> None:
    words = ("submit", "smoke", "--study", tmp_path / "study", "--pip", "--follow")
    done = run(head, "-m", "tune_sentcl", *words, "--address", head.dashboard)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = Study.read(tmp_path / "study").ended().values()
    assert [known.status for known in ended] == ["finished"] * 2


def test_pips_own_error_is_shown(head: Cluster, tmp_path: Path) -> None:
    done = run(head, "-c", SUBMIT, head.dashboard, tmp_path, '{"pip": ["/no/such/package.whl"]}')
    assert done.returncode == 0, done.stderr
    assert "FAILED" in done.stdout and "/no/such/package.whl" in done.stdout, done.stdout
