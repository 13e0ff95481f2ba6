"""Clusters of more than one node, and addresses where there is none."""

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from local_ray import no_token, start_ray
from model_samples import save_roberta
from ray.cluster_utils import Cluster
from search_samples import lambda_space, numbers, run_here, run_on_ray, statuses
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import ResourceError
from tune_sentcl.launch import run_prepared
from tune_sentcl.on_ray.cluster import start_with_retry
from tune_sentcl.on_ray.preflight import ACCELERATOR, Survey, check_address, installed_versions
from tune_sentcl.on_ray.survey import survey
from tune_sentcl.space import Space
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.resources import Bundle
from tune_sentcl.tuning.search_options import SearchOptions


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes with one core each, to which this process connects."""
    ray.shutdown()
    with no_token():
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        try:
            cluster.add_node(num_cpus=1, labels={ACCELERATOR: "T4"})
            ray.init(address=cluster.address, log_to_driver=False)
            cluster.wait_for_nodes()
            yield cluster.address
        finally:
            ray.shutdown()
            cluster.shutdown()
            start_ray()


def looked(space: Space, study: Path | str = "", **options: Any) -> Survey:
    """What a search would be told of the cluster to which this process is connected."""
    asked = SearchOptions(**{"address": "auto", **options})
    return survey(prepare(space, None, (0,), asked), str(study))


@pytest.mark.long
@pytest.mark.ray
def test_a_folder_that_every_node_sees_is_taken(two_nodes: str, tmp_path: Path) -> None:
    study, space = tmp_path / "not/there/yet", lambda_space(tmp_path / "space", 0.3)
    found = looked(space, study)
    assert (found.faults, found.trial) == ([], Bundle(1, 0.0))
    assert [path.name for path in tmp_path.iterdir()] == ["space"]
    assert [node.no_answer for node in found.nodes] == ["", ""]
    assert len({node.name for node in found.nodes}) == 2
    for node in found.nodes:
        assert node.versions["torch"] == installed_versions()["torch"]
    assert {row["trials at a time"] for row in found.rows()} == {1}


@pytest.mark.long
@pytest.mark.ray
def test_trap_a_folder_that_other_nodes_do_not_see_is_refused(
    two_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which is another folder for each process
    space = lambda_space(tmp_path / "space", 0.3)
    (fault,) = looked(space, "/proc/self/cwd").faults
    assert fault.rule.startswith("every node must share the study's storage with the driver, and ")
    assert fault.rule.endswith("does not see it")
    assert [path.name for path in tmp_path.iterdir()] == ["space"]


@pytest.mark.long
@pytest.mark.ray
def test_all_faults_come_at_once_and_leave_nothing(
    two_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(save_roberta(tmp_path / "roberta"), os.O_RDONLY)
    own = f"/proc/self/fd/{fcntl.fcntl(folder, fcntl.F_DUPFD, 700)}"  # which no worker has
    space = lambda_space(tmp_path / "space", 0.3).with_overrides(
        {"encoder.checkpoint": own, "encoder.max_length": 16}
    )
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    prepared = prepare(space, None, (0,), SearchOptions(address=two_nodes))
    with pytest.raises(ResourceError) as caught:
        run_prepared(prepared, "/proc/self/cwd/study")
    wheres = [fault.where for fault in caught.value.faults]
    assert wheres == ["--study", "encoder.checkpoint"]
    assert "and this one reads nothing (" in caught.value.faults[1].rule
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.mark.long
@pytest.mark.ray
def test_the_command_prints_the_nodes_and_every_fault(two_nodes: str, tmp_path: Path) -> None:
    study = tmp_path / "study"
    command = ["check", "smoke", "--address", two_nodes, "--study", str(study)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.exception) == (0, None), done.output
    title, *_ = done.stdout.splitlines()
    assert title.rstrip() == "Nodes for smoke, a trial takes 1 CPU, 0 GPU"
    assert done.stdout.count(" up ") == 2 and "can be run there" in done.stdout
    wrong = ("--json", "--cpus-per-trial", "2", "--accelerator", "H200")
    done = CliRunner().invoke(app, [*command, *wrong])
    assert done.exit_code == 0
    assert [row["trials at a time"] for row in json.loads(done.stdout)] == [0, 0]
    assert "no node that is up fits a trial (2 CPU, 1 GPU (H200); " in done.stderr
    assert not study.exists()


@pytest.mark.long
@pytest.mark.ray
def test_a_label_chooses_the_node_and_memory_may_be_reserved(
    two_nodes: str, tmp_path: Path
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    labels = {node["Labels"].get("ray.io/accelerator-type") for node in ray.nodes()}
    assert labels == {None, "T4"}
    asked = {"address": two_nodes, "gpus_per_trial": 0.0, "accelerator": "T4"}
    assert run_on_ray(space, study, **asked).failures == 0
    assert looked(space, study).trial.memory == 0
    assert looked(space, study, memory_per_trial=0.5).trial.memory == 500_000_000
    more = lambda_space(tmp_path / "space", 0.3, 0.7, 0.9)
    outcome = run_on_ray(more, study, **asked, memory_per_trial=0.2)
    assert (outcome.ran, outcome.failures) == (1, 0)


@pytest.mark.long
@pytest.mark.ray
def test_two_nodes_share_a_search_and_give_the_same_scores(two_nodes: str, tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3, 0.7)
    outcome = run_on_ray(space, tmp_path / "study", address=two_nodes, seeds=(0, 1))
    assert (outcome.ran, outcome.failures) == (4, 0)
    assert statuses(tmp_path / "study") == ["finished"] * 4
    run_here(space, tmp_path / "here", seeds=(0, 1))
    assert numbers(tmp_path / "study") == numbers(tmp_path / "here")


class Starts:
    """Starts of Ray of which the first few are too slow; each leaves a process running."""

    slow = "The current node timed out during startup. This could happen because some of the ray"

    def __init__(self, says: str = slow, too_slow: int = 1) -> None:
        self.says, self.too_slow, self.runs = says, too_slow, list[subprocess.Popen[bytes]]()

    def __call__(self) -> None:
        assert [run.wait() for run in self.runs] == [-9] * len(self.runs), "they would compete"
        self.runs.append(subprocess.Popen(["sleep", "600"]))
        if len(self.runs) <= self.too_slow:
            raise Exception(self.says)


def test_a_ray_that_starts_too_slowly_is_started_once_more() -> None:
    starts = Starts()
    try:
        start_with_retry(starts)
        assert len(starts.runs) == 2 and starts.runs[1].poll() is None
    finally:
        starts.runs[-1].kill()
        starts.runs[-1].wait()


def test_a_ray_that_is_too_slow_twice_is_an_error_of_one_sentence() -> None:
    starts = Starts(too_slow=9)
    with pytest.raises(ResourceError, match="2 starts on this machine did not") as caught:
        start_with_retry(starts)
    assert [run.wait() for run in starts.runs] == [-9, -9] and "\n" not in str(caught.value)


def test_another_error_of_a_start_is_passed_on() -> None:
    starts = Starts("another error")
    with pytest.raises(Exception, match=starts.says):
        start_with_retry(starts)
    starts.runs[-1].kill()
    assert [run.wait() for run in starts.runs] == [-9]


@pytest.fixture
def not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no test before had started a Ray, which would be used."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)

    def refuses(*, address: str, **options: object) -> None:
        raise ConnectionError(address)

    monkeypatch.setattr(ray, "init", refuses)


@pytest.mark.usefixtures("not_connected")
@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:99999999"])
def test_an_address_where_no_cluster_answers_is_refused_at_once(
    tmp_path: Path, address: str
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = address or f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ResourceError, match="must be the address of a Ray cluster"):
            run_on_ray(lambda_space(tmp_path / "space", 0.3), tmp_path / "study", address=address)
    assert not (tmp_path / "study").exists()


@pytest.mark.long
def test_a_cluster_that_never_answers_is_given_up() -> None:
    """As somebody else's that `auto` finds: Ray asked it for nine minutes."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [sys.executable, "-m", "tune_sentcl", "check", "smoke", "--address", address]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 2
    assert f"{address}: must be the address of a Ray cluster that answers" in done.stderr


def test_only_addresses_of_host_and_port_are_tried() -> None:
    for other in ("local", "auto", "ray://head:10001"):
        check_address(other)
