"""All nodes of a cluster asked at once what they have and see."""

import math
import os
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_sentcl.errors import first_line
from tune_sentcl.launch.ray import answer as answers
from tune_sentcl.launch.ray.draining import draining
from tune_sentcl.launch.ray.facts import ClusterFacts, Kind, NodeFacts
from tune_sentcl.launch.ray.reach import nonces
from tune_sentcl.launch.slots import Node

_ANSWER_S = 25.0  # what a node is given; an idle one takes three
_ANSWER = "TUNE_SENTCL_ANSWER_SECONDS"
ACCELERATOR = "ray.io/accelerator-type"
"""The label by which Ray says which GPU a node has."""


def cluster_nodes() -> list[Node]:
    """What the nodes have that are up by now and do not drain."""
    return [_node(found) for found in _up()]


def seen_by_ray() -> ClusterFacts:
    """What Ray itself knows of the nodes; they are not asked."""
    return ClusterFacts(list(_named("was not asked").values()))


def ask_nodes(study: str, checkpoints: Collection[str], packages: Collection[str]) -> ClusterFacts:
    """Ask all nodes at once, each by a task that takes no core.

    Args:
        study: A study's folder or URL, which each node has to see as the driver does; nothing
            stays there. Empty: no place is looked at.
        checkpoints: Encoders that each has to read.
        packages: Whose versions there are wanted.

    Raises:
        StudyError: The driver itself cannot write there.
    """
    known = _named("")
    question = {
        "folder": str(Path.cwd()),
        "packages": [name for name in packages if name != "python"],
        "checkpoints": list(checkpoints),
    }
    with nonces(study, list(known)) if study else nullcontext() as files:
        places = {node: files.of(node) if files else None for node in known}
        offers = {node: fact.node.gpus > 0 for node, fact in known.items()}
        given = _answers(
            {node: {**question, "gpus": offers[node], "nonces": places[node]} for node in known}
        )
        facts = []
        for node, fact in known.items():
            found = given[node]
            if isinstance(found, str):
                facts.append(replace(fact, silent=found))
                continue
            told = {name: found[name] for name in found if name != "autoscaler"}
            told["reach"] = found["reach"] or (files.missed(node) if files else "")
            facts.append(replace(fact, **told))
    heads = (given[found["NodeID"]] for found in _up() if _is_head(found))
    kinds = next((found["autoscaler"] for found in heads if isinstance(found, dict)), None)
    return ClusterFacts(facts, _kinds(kinds), _dashboard())


def _answers(questions: Mapping[str, Any]) -> dict[str, answers.Answer | str]:
    """Answers by node; a text says why there is none."""
    ray.cloudpickle.register_pickle_by_value(answers)
    try:
        asked = {
            node: ray.remote(answers.answer)
            .options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(question)
            for node, question in questions.items()
        }
    finally:
        ray.cloudpickle.unregister_pickle_by_value(answers)
    limit = float(os.environ.get(_ANSWER) or _ANSWER_S)
    there, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=limit)
    for reference in late:
        with suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(reference, force=True)
    why = f"did not answer within {limit:g} s"
    return {node: _get(found) if found in there else why for node, found in asked.items()}


def _get(reference: "ray.ObjectRef[answers.Answer]") -> answers.Answer | str:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return f"could not answer ({str(error).strip().splitlines()[-1]})"
    except ray.exceptions.RayError as error:
        return f"could not answer ({first_line(error)})"


def _up() -> list[dict[str, Any]]:
    """The nodes that are up, the head first; those that drain take no tasks, nor trials."""
    leaving = draining()
    up = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in leaving]
    # Ray names them in an order that changes from run to run.
    return sorted(up, key=lambda node: (not _is_head(node), node["NodeManagerAddress"]))


def _is_head(found: Mapping[str, Any]) -> bool:
    return "node:__internal_head__" in found["Resources"]


def _named(silent: str) -> dict[str, NodeFacts]:
    """The nodes by id; ids' beginnings tell apart what shares a host."""
    up = _up()
    hosts = [found["NodeManagerHostname"] for found in up]
    facts = {}
    for found, host in zip(up, hosts, strict=True):
        name = host if hosts.count(host) == 1 else f"{host} ({found['NodeID'][:8]})"
        node, address = _node(found), found["NodeManagerAddress"]
        facts[found["NodeID"]] = NodeFacts(name, address, node, silent)
    return facts


def _node(found: Mapping[str, Any]) -> Node:
    return _node_of(found["Resources"], found.get("Labels", {}))


def _node_of(resources: Mapping[str, float], labels: Mapping[str, str]) -> Node:
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    return Node(cpus, gpus, resources.get("memory", 0.0), labels.get(ACCELERATOR))


def _kinds(told: Mapping[str, Any] | None) -> list[Kind] | None:
    """What the head says that its autoscaler may start; what is not counted is no limit."""
    if told is None:
        return None
    found = []
    for name, kind in told.items():
        resources = {"CPU": math.inf, "memory": math.inf, **kind["resources"]}
        of_type = "accelerator_type:"  # how Ray's own detection writes it down
        types = [word.removeprefix(of_type) for word in resources if word.startswith(of_type)]
        labels = {ACCELERATOR: types[0]} if types else {}
        if kind["max_workers"] > 0:
            node = _node_of(resources, labels | kind["labels"])
            found.append(Kind(name, node, kind["max_workers"]))
    return found


def _dashboard() -> str:
    with suppress(AttributeError, ImportError, ray.exceptions.RayError):
        from ray._private.worker import get_dashboard_url  # private; we live without

        return get_dashboard_url() or ""
    return ""
