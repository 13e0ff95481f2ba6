"""A submitted search of twelve trials on three nodes, which lose a node, the driver, or the way.

Each ends as an undisturbed search does: every trial once, the same scores, the same curves.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, cluster
from processes import alive, descendants, processes, wait_until

from tune_sentcl.errors import StudyError
from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.cluster]

TRIALS = 12
SPACE = f"""
name = "faults"
trials = {TRIALS}
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 64
optimizer.lr = 1e-3
optimizer.batch_size = 32
optimizer.epochs = 120
evaluation.every = 40
[[block]]
fixed.method.name = "scl"
grid.method.lambda = {[n / TRIALS for n in range(TRIALS)]}
"""
OFTEN = ("--save-every", "0.001")


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("space") / "faults.toml"
    path.write_text(SPACE)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, space: Path) -> Path:
    """The study of a search that nothing disturbs."""
    study = tmp_path_factory.mktemp("whole") / "study"
    words = ["search", str(space), "--study", str(study), *OFTEN]
    subprocess.run([sys.executable, "-m", "tune_sentcl", *words], check=True, capture_output=True)
    return study


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    """A head without cores and three nodes of one core each, with a token."""
    with cluster(tmp_path / "cluster", cpus=0, TUNE_SENTCL_ANSWER_SECONDS="240") as found:
        for _ in range(3):
            found.add_node()
        yield found


def client(head: Cluster, *words: object) -> "subprocess.Popen[str]":
    told = [str(word) for word in words]
    return subprocess.Popen(
        [sys.executable, "-m", "tune_sentcl", *told, "--address", head.dashboard],
        env=head.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def submitted(head: Cluster, space: Path, study: Path) -> "subprocess.Popen[str]":
    """A process that has submitted the search and follows it to its end."""
    return client(head, "submit", space, "--study", study, "--follow", *OFTEN)


def states(study: Path) -> list[Path]:
    return list((study / "states").glob("[0-9a-f]*"))


def rows(study: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = Study.read(study).trials().to_pylist()
    except StudyError:
        return []
    return found


def numbers(study: Path) -> dict[str, set[tuple[Any, ...]]]:
    """All scores and all points of curves but those that tell of time."""
    read = Study.read(study)
    return {
        "scores": {tuple(row.values()) for row in read.scores().to_pylist()},
        "curves": {tuple(row.values()) for row in read.curves().to_pylist()},
    }


def ends_as(study: Path, whole: Path) -> None:
    found = rows(study)
    assert [row["status"] for row in found] == ["finished"] * TRIALS
    assert len({row["trial_id"] for row in found}) == TRIALS
    assert numbers(study) == numbers(whole)
    assert states(study) == []


def succeeds(follower: "subprocess.Popen[str]") -> None:
    said, _ = follower.communicate(timeout=900)
    assert follower.returncode == 0, said


def driver_of(head: Cluster) -> int:
    """The process that the job runs."""
    family = descendants(head.head.process.pid)
    return next(pid for pid, words in family.items() if " tune_sentcl search " in words)


def test_a_node_that_is_killed_costs_no_trial(
    three: Cluster, space: Path, whole: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    with submitted(three, space, study) as follower:
        wait_until(lambda: len(states(study)) >= 3, "a state of each node's trial")
        three.nodes[0].kill()
        succeeds(follower)
    ends_as(study, whole)
    assert any((row["notes"] or "").startswith("went on from step") for row in rows(study))
    assert len(Study.read(study).files.names(".lease")) == 1, "nodes share it"


def test_a_driver_that_is_killed_and_a_command_that_is_repeated(
    three: Cluster, space: Path, whole: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    with submitted(three, space, study) as follower:
        wait_until(lambda: len(rows(study)) >= 2, "two rows")
        os.kill(driver_of(three), signal.SIGKILL)
        said, _ = follower.communicate(timeout=300)
    assert follower.returncode != 0, said
    there = {row["trial_id"] for row in rows(study)}
    with submitted(three, space, study) as follower:
        succeeds(follower)
    ends_as(study, whole)
    with client(three, "jobs", "status", study, "--json") as listed:
        first, second = json.loads(listed.communicate()[0])
    assert (first["status"], second["status"]) == ("FAILED", "SUCCEEDED")
    again = {row["trial_id"] for row in rows(study) if row["attempt_files"].startswith("1-")}
    assert there <= again, "what had ended was not run again"


def test_a_second_driver_is_refused_and_changes_nothing(
    three: Cluster, space: Path, whole: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    with submitted(three, space, study) as follower:
        wait_until(lambda: rows(study), "a row")
        words = [sys.executable, "-m", "tune_sentcl", "search", str(space), "--study", str(study)]
        other = subprocess.run(
            [*words, "--address", three.gcs],
            env=three.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert other.returncode == 2
        assert "another driver has this study: process" in other.stderr
        succeeds(follower)
    ends_as(study, whole)


def test_nothing_stays_when_a_search_is_stopped(
    three: Cluster, space: Path, whole: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    with submitted(three, space, study) as follower:
        wait_until(lambda: len(states(study)) >= 2, "two states")
        driver = driver_of(three)
        with client(three, "jobs", "stop", study) as stop:
            said, _ = stop.communicate(timeout=120)
            assert stop.returncode == 0, said
        follower.communicate(timeout=60)
    wait_until(lambda: not alive({driver}), "the driver's end")
    assert not [text for _, text in processes().values() if str(study) in text]
    with submitted(three, space, study) as follower:
        succeeds(follower)
    ends_as(study, whole)
