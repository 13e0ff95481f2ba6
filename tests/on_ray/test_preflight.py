"""The rules by which a cluster is fit for a search, over what is known of it."""

from dataclasses import replace
from typing import Any

import pytest

from tune_sentcl.on_ray.preflight import (
    ClusterStatus,
    NodeRequirements,
    NodeStatus,
    NodeType,
    Survey,
    faults,
    node_types_of,
    warnings,
)
from tune_sentcl.tuning.resources import Bundle, Node, trials_to_request

VERSIONS = {"python": "3.11", "torch": "2.13.0", "tune-sentcl": "0.1.0", "pandas": "3.0"}
EXPECTED = NodeRequirements("/study", VERSIONS, {"roberta": "a" * 16})


def node(name: str = "one", **changes: Any) -> NodeStatus:
    """A node with which nothing is wrong."""
    whole = NodeStatus(
        name,
        Node(8, 2, 32e9, "H200"),
        versions=dict(VERSIONS),
        checkpoints={"roberta": (True, "a" * 16)},
    )
    return replace(whole, **changes)


def told(*nodes: NodeStatus, trial: Bundle | None = None, node_types: Any = ()) -> list[str]:
    cluster = ClusterStatus(nodes, node_types)
    return [str(fault) for fault in faults(cluster, trial or Bundle(1, 1.0), EXPECTED)]


def test_a_cluster_with_which_nothing_is_wrong() -> None:
    assert told(node(), node("two")) == []
    assert list(warnings(ClusterStatus([node()]), Bundle(1, 1.0))) == []


@pytest.mark.parametrize(
    ("trial", "value"),
    [
        (Bundle(9, 0.0), "9 CPU, 0 GPU"),
        (Bundle(1, 3.0), "1 CPU, 3 GPU"),
        (Bundle(1, 1.0, int(33e9)), "1 CPU, 1 GPU, 33 GB"),
        (Bundle(1, 1.0, 0, "A100"), "1 CPU, 1 GPU (A100)"),
    ],
)
def test_what_no_node_holds_is_refused(trial: Bundle, value: str) -> None:
    (fault,) = told(node(), node("two"), trial=trial)
    assert f": {value}: must fit one node of the cluster (2 x 8 CPU, 2 GPU (H200)" in fault
    assert ("--accelerator" in fault, "--memory" in fault) == (
        bool(trial.accelerator),
        bool(trial.memory),
    )


def test_a_cluster_scaled_to_zero_is_no_fault() -> None:
    head = node("head", node=Node(0, 0, 4e9))
    larger = NodeType("gpu", Node(8, 8, 500e9, "A100"), 4)
    trial = Bundle(1, 1.0, int(9e9), "A100")
    assert told(head, trial=trial, node_types=[larger]) == []
    (said,) = warnings(ClusterStatus([head], [larger]), trial)
    assert said.endswith("(1 CPU, 1 GPU (A100), 9 GB): the autoscaler has to start one")
    (fault,) = told(head, trial=Bundle(1, 1.0, 0, "H100"), node_types=[larger])
    assert "(0 CPU, 0 GPU; to be started: 8 CPU, 8 GPU (A100))" in fault


def test_an_autoscaler_that_does_not_say_what_it_may_start_is_taken_at_its_word() -> None:
    head = node("head", node=Node(0, 0, 4e9))
    assert told(head, node_types=None) == []
    (said,) = warnings(ClusterStatus([head], None), Bundle(1, 1.0))
    assert said.endswith("trials wait until there is one")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"no_answer": "did not answer within 25 s"},
            "--address: on bad: every node must answer, and this one did not answer within 25 s. ",
        ),
        (
            {"storage_fault": "does not see it"},
            "--study: /study on bad: every node must share the study's storage with the driver, "
            "and this one does not see it. ",
        ),
        (
            {"versions": {**VERSIONS, "torch": "2.12.0"}},
            "--address: torch = 2.12.0 on bad: every node must have the driver's, 2.13.0. ",
        ),
        (
            {"versions": {**VERSIONS, "pandas": ""}},
            "--address: pandas = none on bad: every node must have it. Install pandas 3.0 on it.",
        ),
        (
            {"checkpoints": {"roberta": (False, "no such folder")}},
            "encoder.checkpoint: roberta on bad: every node must read it, and this one cannot "
            "(no such folder). Give ",
        ),
        (
            {"checkpoints": {"roberta": (True, "b" * 16)}},
            "encoder.checkpoint: roberta on bad: every node must read it, and this one reads "
            f"other bytes ({'b' * 16}) than the driver ({'a' * 16}). Give ",
        ),
        (
            {"devices": 0},
            "--gpus-per-trial: 1 on bad: torch must see every GPU that a node offers to Ray "
            "(2 offered, and torch 2.13.0 without CUDA sees 0). ",
        ),
        (
            {"devices": 1, "cuda": "13.0"},
            "--gpus-per-trial: 1 on bad: torch must see every GPU that a node offers to Ray "
            "(2 offered, and torch 2.13.0 for CUDA 13.0 sees 1). ",
        ),
    ],
)
def test_what_is_wrong_with_one_node_is_said_of_it_alone(
    changes: dict[str, Any], message: str
) -> None:
    (fault,) = told(node(), node("bad", **changes), node("three"))
    assert fault.startswith(message)


def test_a_torch_that_sees_its_gpus_or_needs_none_is_no_fault() -> None:
    assert told(node(devices=2, cuda="13.0"), node("blind", node=Node(8, 0, 32e9))) == []
    assert told(node(devices=0), trial=Bundle(1, 0.0)) == []
    assert told(node(devices=None)) == []  # it could not be asked, and versions say why


def test_libraries_that_need_not_be_equal_are_not_compared() -> None:
    assert told(node(versions={**VERSIONS, "pandas": "2.2"})) == []


def test_all_faults_come_at_once_and_equal_ones_in_one_line() -> None:
    bad = {
        "versions": {**VERSIONS, "torch": "", "tune-sentcl": "0.0.9"},
        "storage_fault": "has none",
    }
    nodes = [node(str(number), **bad) for number in range(5)]
    found = told(*nodes, trial=Bundle(99, 0.0))
    assert len(found) == 4
    assert sum("0, 1, 2 and 2 more" in fault for fault in found) == 3


def test_node_types_of_an_autoscaler_are_read_without_their_secrets() -> None:
    labels = {"ray.io/accelerator-type": "T4"}
    types = {
        "head": {"resources": {"CPU": 0}, "labels": {}, "max_workers": 0},
        "named": {"resources": {"CPU": 4, "GPU": 1}, "labels": labels, "max_workers": 2},
        "detected": {"resources": {"accelerator_type:A100": 1}, "labels": {}, "max_workers": 1},
    }
    named, detected = node_types_of(types)
    assert (named.most, named.node.cpus, named.node.accelerator) == (2, 4, "T4")
    assert detected.node.accelerator == "A100"
    assert named.node.slots(Bundle(1, 0.0, int(1e12))) == 4, "uncounted memory is no limit"


@pytest.mark.parametrize(("node_types", "expected"), [([], 8), (None, 16), ([("gpu", 3)], 24)])
def test_how_many_trials_run_side_by_side(node_types: Any, expected: int) -> None:
    more = node_types and [NodeType(name, Node(8, 0), most) for name, most in node_types]
    found = Survey(ClusterStatus([node()], more), Bundle(1, 0.0), [], [])
    assert found.max_parallel([Node(8, 0)]) == expected


@pytest.mark.parametrize(
    ("fit", "startable", "running", "known", "asked"),
    [
        (4, 4, 0, 0, 5),  # one waits for the next free slot
        (4, 4, 0, 99, 5),
        (4, 100, 0, 0, 8),  # as many again as run
        (4, 6, 4, 0, 6),
        (4, 100, 4, 50, 54),  # what is known is asked for at once
        (4, 20, 4, 50, 20),
        (0, 20, 0, 0, 1),  # scaled to zero, and nothing learned yet
        (0, 20, 0, 9, 9),
        (0, 0, 0, 9, 1),
    ],
)
def test_how_many_trials_are_asked_for(
    fit: int, startable: int, running: int, known: int, asked: int
) -> None:
    assert trials_to_request(fit, startable, running, known) == asked
