"""The rules by which a cluster is fit for a search, over the answers of its nodes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tune_sentcl.on_ray.environment import installed_versions
from tune_sentcl.on_ray.preflight import (
    NodeStatus,
    describe_node,
    faults,
    warnings,
)
from tune_sentcl.tuning.machine import Bundle, Node, trials_to_request

VERSIONS = {"python": "3.11", "torch": "2.13.0", "tune-sentcl": "0.1.0", "pandas": "3.0"}
VERSIONS["plugin nice"] = "a" * 16
ENCODERS = {"roberta": "a" * 16}
DRIVER = NodeStatus("driver", Node(0, 0), versions=VERSIONS, checkpoints=ENCODERS)


def node(name: str = "one", **changes: Any) -> NodeStatus:
    """A node with which nothing is wrong."""
    return replace(DRIVER, **{"name": name, "node": Node(8, 2, 32e9, "H200"), **changes})


def faults_of(*nodes: NodeStatus, trial: Bundle | None = None) -> list[str]:
    return [str(fault) for fault in faults(nodes, trial or Bundle(1, 1.0), DRIVER, "/study")]


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({}, 1.0),
        ({"devices": 2, "cuda": "13.0"}, 1.0),
        ({"node": Node(8, 0, 32e9)}, 1.0),
        ({"devices": 0}, 0.0),
        ({"devices": None}, 1.0),  # it could not be asked, and versions say why
        ({"versions": {**VERSIONS, "pandas": "2.2"}}, 1.0),  # which need not be equal
    ],
)
def test_nodes_with_which_nothing_is_wrong(changes: dict[str, Any], gpus: float) -> None:
    assert faults_of(node(), node("two", **changes), trial=Bundle(1, gpus)) == []
    assert list(warnings([node(), node("two", **changes)], Bundle(1, gpus))) == []


@pytest.mark.parametrize(
    ("trial", "shown"),
    [
        (Bundle(9, 0.0), "9 CPU, 0 GPU"),
        (Bundle(1, 3.0), "1 CPU, 3 GPU"),
        (Bundle(1, 1.0, int(33e9)), "1 CPU, 1 GPU, 33 GB"),
        (Bundle(1, 1.0, 0, "A100"), "1 CPU, 1 GPU (A100)"),
    ],
)
def test_a_trial_that_fits_no_node_waits_which_is_told_once(trial: Bundle, shown: str) -> None:
    """An autoscaler may start one."""
    nodes = [node(), node("two")]
    assert faults_of(*nodes, trial=trial) == []
    (said,) = warnings(nodes, trial)
    assert said.startswith(f"no running node fits a trial ({shown}; nodes: 8 CPU, 2 GPU (H200)")


def test_a_full_disk_is_faults_of() -> None:
    nodes = [node(free_disk=4e8), node("two", free_disk=4e9), node("three", free_disk=None)]
    assert list(warnings(nodes, Bundle(1, 0.0))) == ["one has only 0.4 GB of free disk for caches"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"no_answer": "did not answer within 25 s"},
            "--address: on bad: every node must answer, but this node did not answer within 25 s. "
            "",
        ),
        (
            {"storage_fault": "does not see the study"},
            "--study: /study on bad: every node must share the study's storage with the driver, "
            "but this node does not see the study. ",
        ),
        (
            {"versions": {**VERSIONS, "torch": "2.12.0"}},
            "--address: torch = 2.12.0 on bad: every node must have the driver's version, 2.13.0. "
            "",
        ),
        (
            {"versions": {name: VERSIONS[name] for name in VERSIONS if name != "pandas"}},
            "--address: pandas = none on bad: every node must have the driver's version, 3.0. "
            "Install ",
        ),
        (
            {"versions": {**VERSIONS, "plugin nice": "b" * 16}},
            f"--address: plugin nice = {'b' * 16} on bad: every node must have the driver's "
            f"version, {'a' * 16}. Install that version on the node.",
        ),
        (
            {"checkpoints": {"roberta": "nothing (no such folder)"}},
            f"encoder.checkpoint: roberta on bad: every node must read the driver's files "
            f"({'a' * 16}), but this node reads nothing (no such folder). Give ",
        ),
        (
            {"devices": 0},
            "--gpus-per-trial: 1 on bad: torch must see the 2 GPUs that the node offers to Ray, "
            "but torch 2.13.0 without CUDA sees 0. ",
        ),
        (
            {"devices": 1, "cuda": "13.0"},
            "--gpus-per-trial: 1 on bad: torch must see the 2 GPUs that the node offers to Ray, "
            "but torch 2.13.0 for CUDA 13.0 sees 1. ",
        ),
    ],
)
def test_what_is_wrong_with_one_node_is_said_of_it_alone(
    changes: dict[str, Any], message: str
) -> None:
    (fault,) = faults_of(node(), node("bad", **changes), node("three"))
    assert fault.startswith(message)


def test_all_faults_come_at_once_and_equal_ones_in_one_line() -> None:
    bad = {"versions": {**VERSIONS, "torch": "2", "tune-sentcl": "0.0.9"}, "storage_fault": "no"}
    shown = faults_of(*[node(str(number), **bad) for number in range(5)])
    assert len(shown) == 3
    assert all("0, 1, 2 and 2 more" in fault for fault in shown)


def test_a_node_says_what_it_has_and_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen").touch()
    given = ("/no/such/folder", ["torch", "none"], ["no/such/model"], True, str(tmp_path))
    answer = describe_node(*given, "seen")
    assert answer["versions"].keys() == {"python", "torch"}
    assert answer["versions"].items() <= installed_versions().items()
    assert answer["storage_fault"] == "" and answer["free_disk"] > 0
    assert answer["checkpoints"]["no/such/model"].startswith("nothing (")
    assert isinstance(answer["devices"], int)
    assert describe_node(*given, "other")["storage_fault"] == "does not see the study"
    assert NodeStatus("name", Node(1, 0), **answer).no_answer == ""


@pytest.mark.parametrize(
    ("fit", "known", "asked"),
    [
        (4, 0, 5),  # a sampled one waits for the next free slot
        (4, 6, 6),  # what is queued waits too
        (4, 54, 8),  # up to as many as fit
        (0, 0, 1),  # scaled to zero, and nothing learned yet
        (0, 9, 9),
    ],
)
def test_how_many_trials_are_asked_for(fit: int, known: int, asked: int) -> None:
    assert trials_to_request(fit, known) == asked
