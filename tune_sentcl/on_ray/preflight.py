"""Checks of a cluster before a search writes anything: every node answers five questions."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_sentcl.config import CHECKPOINTS
from tune_sentcl.errors import (
    CheckpointError,
    ConfigError,
    Fault,
    PluginError,
    ResourceError,
    StudyError,
    first_line,
    first_names,
)
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.on_ray.cluster import draining
from tune_sentcl.on_ray.environment import DISTRIBUTION, installed_versions, versions_of
from tune_sentcl.plugins.sources import read_plugin
from tune_sentcl.space import Space
from tune_sentcl.store.driver_files import SCRATCH
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.tuning.machine import Bundle, Node, bundle_of
from tune_sentcl.tuning.question import Question

ACCELERATOR = "ray.io/accelerator-type"
"""The label with which Ray names a node's GPU type."""

_PLUGIN = "plugin "
"""The prefix of installed plugins among the versions; a plugin's version is its fingerprint."""
_EXACT = ("python", DISTRIBUTION, "torch", "transformers", "ray")
_LEAST_DISK = 1e9  # in bytes
# In seconds: an idle node answers within 3 s, or within 10 s if it has to read torch from a disk.
_ANSWER_S = 60.0
_ANSWER_VARIABLE = "TUNE_SENTCL_ANSWER_SECONDS"
_PACKAGED = "toy"  # this package makes this encoder without files, so all nodes have it


@dataclass(frozen=True)
class NodeStatus:
    """A node, and its answers to five questions.

    Attributes:
        name: Its host, with the start of its id if several nodes share a host.
        node: The node's cores, GPUs and memory.
        no_answer: Why the node did not answer; empty if it answered.
        versions: Versions of Python, packages and installed plugins; a missing package is left
            out.
        cuda: The CUDA version of its torch; empty if torch was built without CUDA.
        devices: Number of GPUs that its torch sees; None: unknown.
        storage_fault: Why node and driver do not share the study's storage; empty if they do.
        checkpoints: The fingerprint of each encoder, or why the node cannot read it.
        free_disk: Free bytes on the disk of its caches; None: unknown.
    """

    name: str
    node: Node
    no_answer: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    cuda: str = ""
    devices: int | None = None
    storage_fault: str = ""
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    free_disk: float | None = None


@dataclass(frozen=True)
class Survey:
    """The result of the checks of a cluster.

    Attributes:
        nodes: The nodes that are up.
        trial: The resources of each trial.
        faults: Why the search cannot run there.
        warnings: Notes for the user that do not stop the search.
    """

    nodes: Sequence[NodeStatus]
    trial: Bundle
    faults: Sequence[Fault] = ()
    warnings: Sequence[str] = ()

    def check(self) -> None:
        """Raise ResourceError with all faults, if there are any."""
        if self.faults:
            raise ResourceError(self.faults)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row of a table per node."""
        for status in self.nodes:
            node, disk = status.node, status.free_disk
            yield {
                "node": status.name,
                "state": status.no_answer or "up",
                "CPU": node.cpus,
                "GPU": node.gpus,
                "GB": round(node.memory / 1e9, 1),
                "accelerator": node.accelerator or "",
                "free disk GB": None if disk is None else round(disk / 1e9, 1),
                "trials at a time": node.slots(self.trial),
            }


def describe_node(
    folder: str, packages: Sequence[str], checkpoints: Sequence[str], gpus: bool, *file: str
) -> dict[str, Any]:
    """Answer the five questions on a node; the answers are fields of `NodeStatus`.

    Args:
        folder: The driver's working directory, where relative paths start.
        packages: Names of the packages and installed plugins that the search needs.
        checkpoints: Encoders to read.
        gpus: Whether trials take GPUs.
        file: The study's location, and the name of a file that the driver wrote there.
    """
    storage_fault = _storage_fault(*file) if file else ""
    with suppress(OSError):
        # The driver's folder may not exist on this node.
        os.chdir(folder)
    disk = os.environ.get("TUNE_SENTCL_CACHE") or Path.home()
    return {
        "versions": {**versions_of(packages), **_plugins(packages)},
        "storage_fault": storage_fault,
        "checkpoints": {name: _fingerprint(name) for name in checkpoints},
        "free_disk": shutil.disk_usage(disk).free if Path(disk).is_dir() else None,
        **(_devices() if gpus else {}),
    }


def _storage_fault(location: str, name: str) -> str:
    try:
        files = StudyFiles.at(location)
        if not files.exists(name):
            return "does not see the study"
        files.write_bytes(name, b"")
    except StudyError as error:
        return f"cannot use the study: {first_line(error)}"
    return ""


def _fingerprint(checkpoint: str) -> str:
    try:
        return resolve_checkpoint(checkpoint).fingerprint
    except (CheckpointError, ConfigError) as error:
        return f"nothing ({first_line(error)})"


def _plugins(packages: Sequence[str]) -> dict[str, str]:
    """The fingerprints of the installed plugins among some packages."""
    found = {}
    for name in (name for name in packages if name.startswith(_PLUGIN)):
        with suppress(PluginError):
            found[name] = read_plugin(name.removeprefix(_PLUGIN), "--plugin").fingerprint
    return found


def _devices() -> dict[str, Any]:
    """The CUDA version of torch and the number of GPUs that it sees."""
    # torch sees only the first of several MIG slices, but Ray can give each slice to another
    # worker.
    slices = os.environ.get("CUDA_VISIBLE_DEVICES", "").count("MIG-")
    devices = torch.cuda.device_count()
    devices = max(devices, slices) if devices else 0
    return {"cuda": torch.version.cuda or "", "devices": devices}


def faults(
    nodes: Sequence[NodeStatus], trial: Bundle, driver: NodeStatus, study: str
) -> list[Fault]:
    """Every reason why trials would fail or lose their results.

    A fault that several nodes share is listed once and names the nodes. Nodes must have the
    driver's versions and encoders.
    """
    names_of: dict[Fault, list[str]] = {}
    for node in nodes:
        for fault in _node_faults(node, trial, driver, study):
            names_of.setdefault(fault, []).append(node.name)
    return [
        replace(fault, value=f"{fault.value} on {first_names(names)}".strip())
        for fault, names in names_of.items()
    ]


def _node_faults(
    node: NodeStatus, trial: Bundle, driver: NodeStatus, study: str
) -> Iterator[Fault]:
    if node.no_answer:
        rule = f"every node must answer, but this node {node.no_answer}"
        move = (
            "Repeat the command, install what the node lacks, or remove the node from the cluster."
        )
        yield Fault("--address", rule=rule, move=move)
        return
    if node.storage_fault:
        rule = "every node must share the study's storage with the driver, but this node"
        move = "Use a shared disk, or the URL of an object store."
        yield Fault("--study", value=study, rule=f"{rule} {node.storage_fault}", move=move)
    for name, required in driver.versions.items():
        version = node.versions.get(name, "none")
        is_exact = name in _EXACT or name.startswith(_PLUGIN)
        if version == "none" or (version != required and is_exact):
            rule = f"every node must have the driver's version, {required}"
            move = "Install that version on the node."
            yield Fault("--address", key=name, value=version, rule=rule, move=move)
    for name, required in driver.checkpoints.items():
        fingerprint = node.checkpoints.get(name, "nothing")
        if fingerprint != required:
            rule = f"every node must read the driver's files ({required}), but this node reads"
            move = "Give every node the same files and hub revisions."
            yield Fault("encoder.checkpoint", value=name, rule=f"{rule} {fingerprint}", move=move)
    if trial.gpus and node.devices is not None and node.devices < node.node.gpus:
        built = f"for CUDA {node.cuda}" if node.cuda else "without CUDA"
        rule = f"torch must see the {node.node.gpus:g} GPUs that the node offers to Ray, but torch"
        rule += f" {node.versions.get('torch', '')} {built} sees {node.devices}"
        move = "Install a torch build for the node's GPU driver, or give --gpus-per-trial 0."
        yield Fault("--gpus-per-trial", value=f"{trial.gpus:g}", rule=rule, move=move)


def warnings(nodes: Sequence[NodeStatus], trial: Bundle) -> Iterator[str]:
    """Yield notes for the user that do not stop a search."""
    if not any(status.node.slots(trial) for status in nodes):
        have = "; ".join(dict.fromkeys(str(status.node) for status in nodes))
        text = f"no running node fits a trial ({trial}; nodes: {have}), so trials wait for one"
        yield (
            text
            if trial.gpus
            else (f"{text}. If such a node will have GPUs, give --gpus-per-trial.")
        )
    for status in nodes:
        if status.free_disk is not None and status.free_disk < _LEAST_DISK:
            yield (
                f"{status.name} has only {status.free_disk / 1000000000.0:.1f} GB of free disk "
                "for caches"
            )


def survey(question: Question, study: str) -> Survey:
    """Check the cluster to which this process is connected; it leaves no files behind.

    Every node runs one task, which takes seconds. The single node of a local cluster is not asked.
    `study` need not exist; if it is empty, shared storage is not checked.
    """
    nodes = _nodes_by_id()
    trial = bundle_of(question.options, [status.node for status in nodes.values()])
    if question.options.ray_address == "local" and len(nodes) == 1:
        (status,) = nodes.values()
        if status.node.slots(trial):
            return Survey([status], trial)
        rule = (
            f"a trial must fit this machine ({status.node}, "
            f"{status.node.memory / 1000000000.0:.3g} GB)"
        )
        options = "--cpus-per-trial, --gpus-per-trial, --memory-per-trial"
        return Survey(
            [status],
            trial,
            [
                Fault(
                    options,
                    value=str(trial),
                    rule=rule,
                    move="Lower the largest of these options.",
                )
            ],
        )
    versions = dict(installed_versions(question.space.extras))
    installed = (plugin for plugin in question.space.plugins if not plugin.sources)
    versions |= {f"{_PLUGIN}{plugin.name}": plugin.fingerprint for plugin in installed}
    checkpoints = _fingerprints(question.space)
    driver = NodeStatus("driver", Node(0, 0), versions=versions, checkpoints=checkpoints)
    asked = (str(Path.cwd()), list(versions), list(checkpoints), trial.gpus > 0)
    try:
        statuses = _ask_nodes(nodes, asked, study)
    except StudyError as error:
        # The driver cannot write to the study, which is a fault of its own.
        return Survey(list(nodes.values()), trial, error.faults)
    wrong = faults(statuses, trial, driver, study)
    return Survey(statuses, trial, wrong, list(warnings(statuses, trial)))


def cluster_nodes() -> list[Node]:
    """The nodes that are up, without draining nodes."""
    return [status.node for status in _nodes_by_id().values()]


def _nodes_by_id() -> dict[str, NodeStatus]:
    """The nodes that are up, the head first, without draining nodes, which take no tasks."""
    leaving = draining()
    up = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in leaving]
    # Ray lists nodes in an order that changes from run to run.
    head = "node:__internal_head__"
    up.sort(key=lambda node: (head not in node["Resources"], node["NodeManagerAddress"]))
    hosts = [node["NodeManagerHostname"] for node in up]
    statuses = {}
    for node, host in zip(up, hosts, strict=True):
        name = host if hosts.count(host) == 1 else f"{host} ({node['NodeID'][:8]})"
        amounts, accelerator = node["Resources"], node.get("Labels", {}).get(ACCELERATOR)
        cpus, gpus, memory = (amounts.get(key, 0.0) for key in ("CPU", "GPU", "memory"))
        statuses[node["NodeID"]] = NodeStatus(name, Node(cpus, gpus, memory, accelerator))
    return statuses


def _fingerprints(space: Space) -> dict[str, str]:
    """Fingerprints of the encoders that trials may need; an unreadable encoder is left out."""
    own = (config for config in space.configurations if not config.method.is_trainer)
    values = [config.dotted() for config in own]
    names = {value[key] for value in values for key in CHECKPOINTS if key in value}
    for item in space.ranges:
        if item.key in CHECKPOINTS:
            names.update(item.choices)
    fingerprints = {}
    for name in sorted(names - {_PACKAGED}):
        with suppress(CheckpointError, ConfigError):
            # The search itself reports an encoder that cannot be read.
            fingerprints[name] = resolve_checkpoint(name).fingerprint
    return fingerprints


def _ask_nodes(
    nodes: Mapping[str, NodeStatus], question: tuple[Any, ...], study: str
) -> list[NodeStatus]:
    """Ask all nodes at once.

    The driver writes a file with a random name into the study, which a node finds only in the same
    storage. If the study's folder does not exist yet, the nearest existing parent is used.

    Raises:
        StudyError: The driver cannot write to the study.
    """
    if not study:
        return _answers(nodes, question)
    if "://" not in study:
        study = str(next(p for p in (Path(study), *Path(study).parents) if p.is_dir()))
    # If this driver is killed, the next one that opens the study deletes files with such names.
    files, name = StudyFiles.at(study), f"{SCRATCH}000000-{token_hex(4)}"
    try:
        files.write_bytes(name, b"")
        return _answers(nodes, (*question, study, name))
    finally:
        with suppress(StudyError):
            files.delete(name)


def _answers(nodes: Mapping[str, NodeStatus], question: tuple[Any, ...]) -> list[NodeStatus]:
    """The nodes with their answers, or with the reason why a node did not answer."""
    # `max_calls=1` ends the worker after the call. torch may start CUDA there, and then no trial
    # may use the process.
    describe = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(describe_node)
    on = NodeAffinitySchedulingStrategy
    answers = {
        node: describe.options(scheduling_strategy=on(node, soft=False)).remote(*question)
        for node in nodes
    }
    limit = float(os.environ.get(_ANSWER_VARIABLE) or _ANSWER_S)
    ready, late = ray.wait(list(answers.values()), num_returns=len(answers), timeout=limit)
    for reference in late:
        with suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(reference, force=True)
    late_status = {"no_answer": f"did not answer within {limit:g} s"}
    return [
        replace(nodes[node], **(_get(answer) if answer in ready else late_status))
        for node, answer in answers.items()
    ]


def _get(reference: "ray.ObjectRef[dict[str, Any]]") -> dict[str, Any]:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        # The node lacks this package, for example.
        return {"no_answer": f"could not answer ({str(error).strip().splitlines()[-1]})"}
