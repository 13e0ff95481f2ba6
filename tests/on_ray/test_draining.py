"""Draining nodes: their trials write their state and move, which costs no try."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from local_ray import no_token
from processes import beside, wait_until
from ray.cluster_utils import Cluster
from search_samples import (
    Row,
    assigned,
    lambda_space,
    numbers,
    reported,
    rows,
    run_here,
    run_on_ray,
)

from tune_sentcl.errors import NodeDrainingError
from tune_sentcl.launch import run_prepared
from tune_sentcl.on_ray.draining import draining
from tune_sentcl.on_ray.survey import cluster_nodes
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, WorkerSettings

LONG = "optimizer.epochs = 120\nevaluation.every = 40"


def test_a_trial_whose_machine_leaves_writes_its_state_and_goes_on_elsewhere(
    tmp_path: Path,
) -> None:
    fixed = "optimizer.epochs = 5\nevaluation.every = 4"
    space, study = lambda_space(tmp_path / "space", 0.3, fixed=fixed), tmp_path / "study"
    StudyDriver.open(study, space=space, command=["test"]).close()
    loader, settings = InputLoader(None), WorkerSettings(str(study), True, 1, 0.0)
    settings = replace(settings, save_every=600.0)
    given = assigned(space.configurations[0], loader)
    asked = iter([False, *5 * [False], True])
    with (
        closing(Attempt(given, loader, settings, lambda: next(asked)).points()) as points,
        pytest.raises(NodeDrainingError, match="at step 6"),
    ):
        list(points)
    assert Study.read(study).states() == {given.trial_id}
    with pytest.raises(NodeDrainingError):  # it would be the next one there
        next(Attempt(given, loader, settings, lambda: True).points())
    outcome = run_here(space, study)
    assert outcome.ran == 1
    (row,) = rows(study)
    assert row["notes"].startswith("continued from step 6")
    run_here(space, tmp_path / "whole")
    assert numbers(study) == numbers(tmp_path / "whole")


def test_moves_cost_no_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"

    def moves(session: Session) -> None:
        while not session.finished:
            assignment = session.next()
            assert assignment is not None
            session.started(assignment.trial_id)
            session.node_draining(assignment.trial_id)
            session.node_draining(assignment.trial_id)  # an end that is reported twice counts once

    options = SearchOptions(launcher="local", gpus_per_trial=0.0, retries=0)
    outcome = run_prepared(prepare(space, None, (0,), options), str(study), moves)
    said = capsys.readouterr().err
    assert said.count("moves to another node, because its node is draining") == 20
    assert outcome.failures == 1, "without end it would go round for ever"
    assert rows(study)[0]["error_type"] == "NodeDrainingError"


@pytest.fixture
def three_nodes() -> Iterator[Cluster]:
    """A head without cores and two nodes of one core, to which this process connects."""
    ray.shutdown()
    with no_token():
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1)
            ray.init(address=cluster.address, log_to_driver=False)
            cluster.wait_for_nodes()
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def drain(address: str, node: str) -> None:
    """What a cloud's notice comes to, by Ray's own command."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", address]
    command += ["--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    subprocess.run([*command, "--reason-message", "a test's"], check=True, timeout=300)


def undisturbed(folder: Path, row: Row) -> None:
    """A trial that moved has the scores of one that was never disturbed."""
    space = lambda_space(folder / "space", row["method.lambda"], fixed=LONG)
    run_here(space, folder / "whole")
    whole = numbers(folder / "whole")
    assert {key[0] for key in whole} == {row["trial_id"]}
    assert whole.items() <= numbers(folder / "study").items()


@pytest.mark.ray
@pytest.mark.long
def test_trials_leave_a_node_that_drains_and_end_as_if_they_had_never_moved(
    three_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert draining() == frozenset()
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.5, 0.7, fixed=LONG)
    study = tmp_path / "study"
    left: list[str] = []

    def notice() -> None:
        """One node drains as soon as both run a trial that has got somewhere."""
        wait_until(lambda: len(reported(study)) >= 2, "two points")
        head = ray.get_runtime_context().get_node_id()
        left.append(next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != head))
        drain(three_nodes.address, left[0])

    options: dict[str, Any] = {"address": three_nodes.address, "retries": 0}
    with beside(notice):
        outcome = run_on_ray(space, study, **options)
    assert (outcome.ran, outcome.failures) == (4, 0)
    assert draining() == frozenset(left) or left[0] not in {
        node["NodeID"] for node in ray.nodes() if node["Alive"]
    }
    assert sorted(node.cpus for node in cluster_nodes()) == [0, 1]
    said = capsys.readouterr().err
    assert said.count("moves to another node, because its node is draining") == 1
    went_on = [
        row for row in rows(study) if (row["notes"] or "").startswith("continued from step")
    ]
    assert len(went_on) == 1
    assert {row["attempt"] for row in rows(study)} == {1}
    undisturbed(tmp_path, went_on[0])


@pytest.mark.ray
@pytest.mark.long
def test_a_node_that_is_killed_costs_its_trials_a_try_and_no_work_before_their_state(
    three_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.5, fixed=LONG)
    study = tmp_path / "study"

    def with_states() -> set[str]:
        whole = study.glob("states/[0-9a-f]*/complete")
        return {mark.parent.name.partition(".")[0] for mark in whole}

    def kill() -> None:
        """Once both run a trial that has left a state."""
        wait_until(lambda: len(with_states()) >= 2, "two states")
        three_nodes.remove_node(next(iter(three_nodes.worker_nodes)), allow_graceful=False)

    options: dict[str, Any] = {"address": three_nodes.address, "retries": 1, "save_every": 0.001}
    with beside(kill):
        outcome = run_on_ray(space, study, **options)
    assert (outcome.ran, outcome.failures) == (3, 0)
    said = capsys.readouterr().err
    assert said.count("lost its worker and is tried once more (1 of 1)") == 1
    went_on = [
        row for row in rows(study) if (row["notes"] or "").startswith("continued from step")
    ]
    assert len(went_on) == 1
    undisturbed(tmp_path, went_on[0])
