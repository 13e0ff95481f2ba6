"""Asks the nodes of a cluster five questions before a search writes anything."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_sentcl.config import CHECKPOINTS
from tune_sentcl.errors import CheckpointError, ConfigError, Fault, StudyError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.on_ray.draining import draining
from tune_sentcl.on_ray.preflight import (
    NodeStatus,
    Survey,
    describe_node,
    faults,
    installed_versions,
    node_of,
    warnings,
)
from tune_sentcl.space import Space
from tune_sentcl.store.driver_files import SCRATCH
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.resources import Node, bundle_of

_ANSWER_S = 60.0  # an idle node takes 3 s, and 10 s where it has to read torch from a disk
_ANSWER_VARIABLE = "TUNE_SENTCL_ANSWER_SECONDS"
_PACKAGED = "toy"  # an encoder without files, which the package generates


def survey(prepared: PreparedSearch, study: str) -> Survey:
    """Check the cluster to which this process is connected; leaves no files.

    Every node answers one task, which takes seconds. The single node of a local cluster is not
    asked. `study` need not exist; if it is empty, shared storage is not checked.
    """
    nodes = _nodes_by_id()
    trial = bundle_of(prepared.options, [status.node for status in nodes.values()])
    if prepared.options.ray_address == "local" and len(nodes) == 1:
        (status,) = nodes.values()
        if status.node.slots(trial):
            return Survey([status], trial)
        rule = f"must fit this machine ({status.node}, {status.node.memory / 1e9:.3g} GB)"
        options = "--cpus-per-trial, --gpus-per-trial, --memory-per-trial"
        return Survey([status], trial, [Fault(options, "", str(trial), rule, "Ask for less.")])
    versions = installed_versions(prepared.space.extras)
    checkpoints = _fingerprints(prepared.space)
    driver = NodeStatus("driver", Node(0, 0), versions=versions, checkpoints=checkpoints)
    question = (str(Path.cwd()), list(versions), list(checkpoints), trial.gpus > 0)
    try:
        asked = _ask_nodes(nodes, question, study)
    except StudyError as error:  # the driver cannot write to the study
        return Survey(list(nodes.values()), trial, error.faults)
    found = faults(asked, trial, driver, study)
    return Survey(asked, trial, found, list(warnings(asked, trial)))


def cluster_nodes() -> list[Node]:
    """The nodes that are up and do not drain."""
    return [status.node for status in _nodes_by_id().values()]


def _nodes_by_id() -> dict[str, NodeStatus]:
    """The nodes that are up, the head first. Nodes that drain take no tasks and no trials."""
    leaving = draining()
    up = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in leaving]
    # Ray's order changes from run to run.
    head = "node:__internal_head__"
    up.sort(key=lambda node: (head not in node["Resources"], node["NodeManagerAddress"]))
    hosts = [node["NodeManagerHostname"] for node in up]
    found = {}
    for node, host in zip(up, hosts, strict=True):
        name = host if hosts.count(host) == 1 else f"{host} ({node['NodeID'][:8]})"
        resources = node_of(node["Resources"], node.get("Labels", {}))
        found[node["NodeID"]] = NodeStatus(name, resources)
    return found


def _fingerprints(space: Space) -> dict[str, str]:
    """Fingerprints of the encoders that trials may need; unreadable ones are left out."""
    values = [config.dotted() for config in space.configurations]
    names = {value[key] for value in values for key in CHECKPOINTS if key in value}
    for item in space.ranges:
        if item.key in CHECKPOINTS:
            names.update(item.choices)
    found = {}
    for name in sorted(names - {_PACKAGED}):
        with suppress(CheckpointError, ConfigError):  # the search itself reports it
            found[name] = resolve_checkpoint(name).fingerprint
    return found


def _ask_nodes(
    nodes: Mapping[str, NodeStatus], question: tuple[Any, ...], study: str
) -> list[NodeStatus]:
    """Ask all nodes at once; raises StudyError if the driver cannot write to the study.

    The driver writes a file with a random name, which a node finds only in the same storage. If
    the study's folder does not exist yet, the nearest existing parent is tested.
    """
    if not study:
        return _answers(nodes, question)
    if "://" not in study:
        study = str(next(p for p in (Path(study), *Path(study).parents) if p.is_dir()))
    # Opening the study deletes files with such names, which a killed driver leaves.
    files, name = StudyFiles.at(study), f"{SCRATCH}000000-{token_hex(4)}"
    try:
        files.write_bytes(name, b"")
        return _answers(nodes, (*question, study, name))
    finally:
        with suppress(StudyError):
            files.delete(name)


def _answers(nodes: Mapping[str, NodeStatus], question: tuple[Any, ...]) -> list[NodeStatus]:
    """The nodes with their answers, or with the reason why a node gave no answer."""
    # The worker ends with the answer: torch may start CUDA there, and then no trial may follow.
    describe = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(describe_node)
    on = NodeAffinitySchedulingStrategy
    asked = {
        node: describe.options(scheduling_strategy=on(node, soft=False)).remote(*question)
        for node in nodes
    }
    limit = float(os.environ.get(_ANSWER_VARIABLE) or _ANSWER_S)
    ready, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=limit)
    for reference in late:
        with suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(reference, force=True)
    late_status = {"no_answer": f"did not answer within {limit:g} s"}
    return [
        replace(nodes[node], **(_get(found) if found in ready else late_status))
        for node, found in asked.items()
    ]


def _get(reference: "ray.ObjectRef[dict[str, Any]]") -> dict[str, Any]:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:  # also if the node lacks this package
        return {"no_answer": f"could not answer ({str(error).strip().splitlines()[-1]})"}
