"""Clusters of more than one node, and addresses where there is none."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from local_ray import no_token, start_ray
from model_samples import save_roberta
from plugin_samples import BUILT_IN, ranking_space, scores_by_method, unchanged_registry
from ray._private import services
from ray.cluster_utils import Cluster
from search_samples import lambda_space, numbers, run_here, run_on_ray
from trainer_samples import rehearsed_here, write_trainers
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import ResourceError, TuneSentclError
from tune_sentcl.launchers import launcher
from tune_sentcl.on_ray import cluster as on_ray_cluster
from tune_sentcl.on_ray.cluster import check_address, cluster
from tune_sentcl.on_ray.preflight import ACCELERATOR
from tune_sentcl.space import load_space
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.search import run_search


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes with one core each, to which this process connects."""
    ray.shutdown()
    with no_token():
        nodes = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        try:
            nodes.add_node(num_cpus=1, labels={ACCELERATOR: "T4"})
            ray.init(address=nodes.address, log_to_driver=False)
            nodes.wait_for_nodes()
            yield nodes.address
        finally:
            ray.shutdown()
            nodes.shutdown()
            start_ray()


@pytest.mark.long
@pytest.mark.ray
def test_all_faults_come_at_once_and_leave_nothing(
    two_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process has this one's folders below /proc/self."""
    folder = os.open(save_roberta(tmp_path / "roberta"), os.O_RDONLY)
    own = f"/proc/self/fd/{fcntl.fcntl(folder, fcntl.F_DUPFD, 700)}"
    space = lambda_space(tmp_path / "space", 0.3).with_overrides(
        {"encoder.checkpoint": own, "encoder.max_length": 16}
    )
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    question = ask(space, None, (0,), SearchOptions(address=two_nodes))
    with pytest.raises(ResourceError) as caught:
        run_search(question, "/proc/self/cwd/study", launcher)
    storage, encoder = caught.value.faults
    assert (storage.where, encoder.where) == ("--study", "encoder.checkpoint")
    assert storage.rule.startswith("every node must share the study's storage with the driver")
    assert storage.rule.endswith("does not see the study")
    assert "but this node reads nothing (" in encoder.rule
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.mark.long
@pytest.mark.ray
def test_the_command_prints_the_nodes_and_every_fault(two_nodes: str, tmp_path: Path) -> None:
    study = tmp_path / "study"
    command = ["check", "smoke", "--address", two_nodes, "--study", str(study)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.exception) == (0, None), done.output
    title, *_ = done.stdout.splitlines()
    assert title.rstrip() == "Nodes for smoke; a trial requests 1 CPU, 0 GPU"
    assert done.stdout.count(" up ") == 2 and "The cluster can run the search" in done.stdout
    wrong = ("--json", "--cpus-per-trial", "2", "--accelerator", "H200")
    done = CliRunner().invoke(app, [*command, *wrong])
    assert done.exit_code == 0
    assert [row["trials at a time"] for row in json.loads(done.stdout)] == [0, 0]
    assert "no running node fits a trial (2 CPU, 1 GPU (H200); " in done.stderr
    assert "The cluster can run the search" not in done.stderr
    assert not study.exists()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.parametrize("more", [{}, {"accelerator": "T4", "memory_per_trial": 0.2}])
def test_nodes_share_a_search_and_give_the_same_scores(
    two_nodes: str, tmp_path: Path, more: dict[str, Any]
) -> None:
    """A label chooses one node, and memory is reserved there."""
    space, labels = lambda_space(tmp_path / "space", 0.3, 0.7), "ray.io/accelerator-type"
    assert {node["Labels"].get(labels) for node in ray.nodes()} == {None, "T4"}
    asked = {"address": two_nodes, "gpus_per_trial": 0.0, "seeds": (0, 1), **more}
    outcome = run_on_ray(space, tmp_path / "study", **asked)
    assert (outcome.ran, outcome.failures) == (4, 0)
    run_here(space, tmp_path / "here", seeds=(0, 1))
    assert numbers(tmp_path / "study") == numbers(tmp_path / "here")


@pytest.mark.long
@pytest.mark.ray
def test_plugins_on_two_nodes_score_as_the_built_in_methods_to_the_bit(
    two_nodes: str, tmp_path: Path
) -> None:
    with unchanged_registry():
        asked = {"address": two_nodes, "gpus_per_trial": 0.0}
        outcome = run_on_ray(ranking_space(tmp_path), tmp_path / "study", **asked)
        assert (outcome.ran, outcome.failures) == (6, 0)
        scores = scores_by_method(tmp_path / "study")
    assert all(scores[name] == scores[f"own_{name}"] for name in BUILT_IN)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_trainer_scores_the_same_on_two_nodes_and_here(two_nodes: str, tmp_path: Path) -> None:
    plugin, file = write_trainers(tmp_path), tmp_path / "own.toml"
    grid = 'fixed.method.name = "dense"\ngrid.method.lr = [1e-3, 1e-2]'
    file.write_text(f'name = "own"\nplugins = ["{plugin}"]\n[[block]]\n{grid}\n')
    with unchanged_registry(), rehearsed_here():
        space = load_space(file)
        asked = {"address": two_nodes, "gpus_per_trial": 0.0, "seeds": (0, 1)}
        outcome = run_on_ray(space, tmp_path / "study", **asked)
        assert (outcome.ran, outcome.failures) == (4, 0)
        assert run_here(space, tmp_path / "here", seeds=(0, 1)).failures == 0
    assert numbers(tmp_path / "study") == numbers(tmp_path / "here")


@pytest.fixture
def not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no test before had started a Ray, which would be used."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)

    def refuses(*, address: str, **options: object) -> None:
        raise ConnectionError(address)

    monkeypatch.setattr(ray, "init", refuses)


@pytest.mark.usefixtures("not_connected")
@pytest.mark.parametrize(
    ("answers", "ended", "says"),
    [
        (400, "", "its processes have not answered for 180 s"),
        (400, "raylet", "its process raylet has ended"),
        (None, "", "No space left on device"),
    ],
)
def test_a_ray_that_cannot_start_is_no_bad_input(
    monkeypatch: pytest.MonkeyPatch, answers: int | None, ended: str, says: str
) -> None:
    """Ray waits for 30 s; and an address that nobody gave is not to blame."""
    starting = Starting(monkeypatch, answers, ended)
    said: list[str] = []
    with pytest.raises(TuneSentclError, match=says) as caught, cluster("local", said.append):
        pass
    assert "--launcher local" in str(caught.value) and not isinstance(caught.value, ValueError)
    assert services.get_node == starting.get_node


@pytest.mark.usefixtures("not_connected")
def test_a_ray_that_starts_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting(monkeypatch, answers=170)
    with cluster("local", print):
        assert starting.asked == 170


class Starting:
    """A start of Ray whose node answers after so many seconds, or whose disk is full."""

    def __init__(self, patch: pytest.MonkeyPatch, answers: int | None, ended: str = "") -> None:
        self.asked, self._answers = 0, answers
        patch.setattr(services, "get_node", self.get_node)
        patch.setattr(ray, "init", self.init)
        patch.setattr(on_ray_cluster, "_ended_process", lambda: ended)
        clock = SimpleNamespace(monotonic=lambda: self.asked, sleep=lambda seconds: None)
        patch.setattr(on_ray_cluster, "time", clock)

    def init(self, **options: object) -> None:
        if self._answers is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        services.get_node("address", "node")

    def get_node(self, *args: object) -> dict[str, object]:
        self.asked += 1
        if self.asked < (self._answers or 0):
            raise RuntimeError("no such node")
        return {}


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
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 2
    assert f"{address}: must be the address of a Ray cluster that answers" in done.stderr


@pytest.mark.parametrize("address", ["local", "auto", "ray://head:10001"])
def test_only_addresses_of_host_and_port_are_tried(address: str) -> None:
    check_address(address)
