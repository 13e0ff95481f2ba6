"""A submitted search of twelve trials on three nodes, which lose nodes, the head, or the way.

Each ends as an undisturbed search does: every trial once, the same scores, the same curves. The
chaos beside this adds other faults, and their combinations.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import ROOT, Cluster, cluster, environment
from networks import network
from processes import alive, descendants, processes, wait_until
from s3_server import serving, variables
from sweeps import (
    OFTEN,
    Client,
    driver_of,
    ends_as,
    first_driver_s,
    rows,
    submitted,
    three_nodes,
    undisturbed,
    written_space,
)

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_space(tmp_path_factory.mktemp("space") / "faults.toml", trials=12, epochs=60)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, space: Path) -> Path:
    return undisturbed(space, tmp_path_factory.mktemp("whole") / "study")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with three_nodes(tmp_path / "cluster") as found:
        yield found


def test_a_driver_that_is_cut_off_until_its_lease_has_run_out_writes_nothing(
    space: Path, whole: Path, tmp_path: Path
) -> None:
    """A whole cluster is, and the study lies on an object store that it does not reach then."""
    study, home = "s3://bucket/study", tmp_path / "home"
    with network(2) as (hub, first, second), serving(hub.ip, hub.prefix) as url:
        store = variables(url)
        mine = environment(home, PYTHONPATH=str(ROOT), **store)

        def inside(code: str) -> None:
            told = [*hub.prefix, sys.executable, "-c", code]
            subprocess.run(told, env=mine, check=True, capture_output=True)

        inside(f"from urllib.request import *; urlopen(Request('{url}/bucket', method='PUT'))")
        words = ["search", space, "--study", study, *OFTEN]
        place: dict[str, Any] = {"ip": first.ip, "prefix": first.prefix, **store}
        with cluster(tmp_path / "cluster", cpus=2, **place) as head:
            asked = [*words, "--address", head.gcs]
            old = Client(tmp_path / "old.log", first.prefix, asked, head.environment())
            wait_until(lambda: "[2/12]" in old.said, "two rows")
            first.cut()
            asked = [*words, "--address", "local", "--max-concurrent", "2"]
            # On one machine it would see that the first one lives.
            elsewhere = [*second.prefix, "unshare", "--pid", "--fork", "--mount-proc"]
            new = Client(tmp_path / "new.log", elsewhere, asked, mine)
            wait_until(lambda: " finished " in new.said, "a row of the second driver")
            first.mend()
            old.ends(None)
            new.ends()
        copy = str(tmp_path / "copy")
        inside(_COPY.format(copy))
    ends_as(tmp_path / "copy", whole)
    epochs = {row["attempt_files"].partition("-")[0] for row in rows(tmp_path / "copy")}
    assert epochs == {"1", "2"}


_COPY = """
from pathlib import Path
from tune_sentcl.store.files import StudyFiles
files = StudyFiles.at("s3://bucket")
for name in files.below("study"):
    path = Path({!r}, name.removeprefix("study/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(files.read_bytes(name))
"""


def test_a_job_that_ray_calls_failed_while_its_driver_lives_leads_to_no_second_one(
    three: Cluster, space: Path, whole: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    follower = submitted(three, space, study)
    wait_until(lambda: rows(study), "a row")
    driver = driver_of(three)
    shell, _ = processes()[driver]
    os.kill(shell, signal.SIGKILL)
    assert "FAILED" in follower.ends(None)
    second = submitted(three, space, study)
    # The first one may come to its end before the second asks.
    refused = second.process.wait(timeout=900) != 0
    assert not refused or "another driver writes to this study" in second.said
    wait_until(lambda: not alive({driver}), "the first driver's end", 900)
    submitted(three, space, study).ends()
    ends_as(study, whole)


def test_a_head_that_is_killed_and_started_again(space: Path, whole: Path, tmp_path: Path) -> None:
    """It takes the cluster with it, for nothing else keeps its state; the study stays."""
    study = tmp_path / "study"
    with three_nodes(tmp_path / "first", RAY_gcs_rpc_server_reconnect_timeout_s="5") as old:
        follower = submitted(old, space, study)
        wait_until(lambda: len(rows(study)) >= 2, "two rows")
        family = {pid for node in old.nodes for pid in descendants(node.process.pid)}
        old.head.kill()
        assert "a Ray dashboard must answer at this address" in follower.ends(None)
        there = {row["trial_id"] for row in rows(study)}
        wait_until(lambda: not alive(family), "the end of its nodes")
    with three_nodes(tmp_path / "second") as new:
        submitted(new, space, study).ends()
    ends_as(study, whole)
    assert there <= first_driver_s(study), "what had ended was not run again"
