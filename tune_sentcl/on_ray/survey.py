"""Collects the status of a cluster's nodes before a search writes anything."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import ExitStack, chdir, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_sentcl.config import CHECKPOINTS
from tune_sentcl.errors import CheckpointError, ConfigError, Fault, StudyError, first_line
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.on_ray import preflight
from tune_sentcl.on_ray.draining import draining
from tune_sentcl.on_ray.preflight import ClusterStatus, NodeRequirements, NodeStatus, Survey
from tune_sentcl.space import Space
from tune_sentcl.store.driver_files import SCRATCH
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.resources import Node, bundle_of

_ANSWER_S = 25.0  # an idle node takes 3 s
_ANSWER_VARIABLE = "TUNE_SENTCL_ANSWER_SECONDS"
_PACKAGED = "toy"  # an encoder without files, which the package generates
# torch sees only one of several MIG slices; Ray gives each slice to another worker.
_TORCH = """
import os, torch
seen, ids = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
print(ids.count("MIG-") if seen and "MIG-" in ids else seen, torch.version.cuda or "")
"""
_TORCH_S = 60


def survey(prepared: PreparedSearch, study: str) -> Survey:
    """Check the cluster to which this process is connected; leaves no files.

    Every node answers one task, which takes seconds. The single node of a local cluster is not
    asked. `study` need not exist; if it is empty, shared storage is not checked.
    """
    options, space = prepared.options, prepared.space
    cluster = ClusterStatus(list(_known_to_ray("was not asked").values()))
    requirements, storage_faults = None, tuple[Fault, ...]()
    if options.ray_address != "local" or len(cluster.nodes) > 1:
        versions = preflight.installed_versions(space.extras)
        requirements = NodeRequirements(study, versions, _fingerprints(space))
        try:
            cluster = _ask_nodes(study, requirements)
        except StudyError as error:  # the driver cannot write to the study
            requirements, storage_faults = None, error.faults
    nodes = [status.node for status in cluster.nodes] + [
        node_type.node for node_type in cluster.node_types or ()
    ]
    trial = bundle_of(options, nodes)
    if requirements is None:
        return Survey(
            cluster, trial, [*preflight.no_fitting_node(cluster, trial), *storage_faults], []
        )
    found = preflight.faults(cluster, trial, requirements)
    return Survey(cluster, trial, found, list(preflight.warnings(cluster, trial)))


def cluster_nodes() -> list[Node]:
    """The nodes that are up and do not drain."""
    return [
        preflight.node_of(found["Resources"], found.get("Labels", {})) for found in _nodes_up()
    ]


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


def _nodes_up() -> list[dict[str, Any]]:
    """The nodes that are up, the head first. Nodes that drain take no tasks and no trials."""
    leaving = draining()
    up = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in leaving]
    # Ray's order changes from run to run.
    head = "node:__internal_head__"
    return sorted(up, key=lambda node: (head not in node["Resources"], node["NodeManagerAddress"]))


def _known_to_ray(no_answer: str) -> dict[str, NodeStatus]:
    """The status of the nodes by id, as far as Ray knows it."""
    up = _nodes_up()
    hosts = [found["NodeManagerHostname"] for found in up]
    statuses = {}
    for found, host in zip(up, hosts, strict=True):
        name = host if hosts.count(host) == 1 else f"{host} ({found['NodeID'][:8]})"
        node = preflight.node_of(found["Resources"], found.get("Labels", {}))
        statuses[found["NodeID"]] = NodeStatus(name, node, no_answer)
    return statuses


def _ask_nodes(study: str, requirements: NodeRequirements) -> ClusterStatus:
    """Ask all nodes at once; raises StudyError if the driver cannot write to the study.

    The driver writes a file that every node must find, and each node writes a file that the driver
    must find: then all share one storage. If the study's folder does not exist yet, the nearest
    existing parent is tested.
    """
    nodes, location = _known_to_ray(""), study
    if study and "://" not in study:
        location = str(next(p for p in (Path(study), *Path(study).parents) if p.is_dir()))
    # Opening the study deletes files with such names, which a killed driver leaves.
    driver_file, *node_files = (f"{SCRATCH}000000-{token_hex(4)}" for _ in range(1 + len(nodes)))
    written = dict(zip(nodes, node_files, strict=True))
    question = {
        "folder": str(Path.cwd()),  # relative paths are the driver's
        "packages": [name for name in requirements.versions if name != "python"],
        "checkpoints": list(requirements.checkpoints),
        "location": location,
        "driver": driver_file,
    }
    questions = {
        node: {**question, "own": written[node], "gpus": status.node.gpus > 0}
        for node, status in nodes.items()
    }
    if not location:
        return _with_answers(nodes, _node_answers(questions), set())
    files = StudyFiles.at(location)
    try:
        files.write_bytes(driver_file, b"")
        answers = _node_answers(questions)
        unseen_nodes = {node for node, name in written.items() if not files.exists(name)}
    finally:
        for name in (driver_file, *node_files):
            with suppress(StudyError):
                files.delete(name)
    return _with_answers(nodes, answers, unseen_nodes)


def _with_answers(
    nodes: Mapping[str, NodeStatus], answers: Mapping[str, Any], unseen_nodes: Collection[str]
) -> ClusterStatus:
    """Merge the answers into the statuses; the driver does not see the files of `unseen_nodes`."""
    statuses, node_types = [], None
    for node, status in nodes.items():
        found = answers[node]
        if isinstance(found, str):
            statuses.append(replace(status, no_answer=found))
            continue
        node_fields = dict(found)
        startable = node_fields.pop("startable")  # the head alone knows
        node_types = node_types if startable is None else preflight.node_types_of(startable)
        if node in unseen_nodes:
            node_fields["storage_fault"] = (
                node_fields["storage_fault"] or "writes there what the driver does not see"
            )
        statuses.append(replace(status, **node_fields))
    return ClusterStatus(statuses, node_types)


def _node_answers(questions: Mapping[str, Any]) -> dict[str, dict[str, Any] | str]:
    """The answers by node; a text says why there is no answer."""
    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)  # a node may lack this package
    try:
        asked = {
            node: ray.remote(_describe_node)
            .options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(question)
            for node, question in questions.items()
        }
    finally:
        ray.cloudpickle.unregister_pickle_by_value(here)
    limit = float(os.environ.get(_ANSWER_VARIABLE) or _ANSWER_S)
    ready, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=limit)
    for reference in late:
        with suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(reference, force=True)
    why = f"did not answer within {limit:g} s"
    return {node: _get(found) if found in ready else why for node, found in asked.items()}


def _get(reference: "ray.ObjectRef[dict[str, Any]]") -> dict[str, Any] | str:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return f"could not answer ({str(error).strip().splitlines()[-1]})"
    except ray.exceptions.RayError as error:
        return f"could not answer ({first_line(error)})"


# The functions below run on the nodes. Ray sends them by value, because a node may lack this
# package. They use the standard library, and report whatever a node lacks in the answer.


def _describe_node(question: dict[str, Any]) -> dict[str, Any]:
    """A node's status: fields of `NodeStatus`, and `startable`."""
    return {
        "versions": _versions(question["packages"]),
        "checkpoints": _checkpoints(question["checkpoints"], question["folder"]),
        "storage_fault": _check_shared_storage(question) if question["location"] else "",
        **(_gpus() if question["gpus"] else {}),
        "startable": _startable(),
    }


def _versions(packages: list[str]) -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def _checkpoints(names: list[str], folder: str) -> dict[str, tuple[bool, str]]:
    """Whether each encoder can be read, with its fingerprint or the error."""
    found = {}
    with ExitStack() as stack:
        if names:
            with suppress(OSError):  # the driver's folder may not exist here
                stack.enter_context(chdir(folder))
        for name in names:
            try:
                from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint

                found[name] = True, resolve_checkpoint(name).fingerprint
            except Exception as error:  # noqa: BLE001 - any error becomes the answer
                found[name] = False, _error_text(error)
    return found


def _check_shared_storage(question: dict[str, Any]) -> str:
    """Find the driver's file and write this node's file."""
    try:
        from tune_sentcl.store.files import StudyFiles

        files = StudyFiles.at(question["location"])
        if not files.exists(question["driver"]):
            return "does not see it"
        files.write_bytes(question["own"], b"")
    except Exception as error:  # noqa: BLE001 - any error becomes the answer
        return f"cannot use it: {_error_text(error)}"
    return ""


def _gpus() -> dict[str, Any]:
    """The CUDA version of torch and the number of GPUs that it sees; empty if that fails.

    Ray may hide GPUs from a task that requests none, and a call of torch would start CUDA in a
    worker that runs trials later. So another process asks torch, in the raylet's environment.
    """
    name = "CUDA_VISIBLE_DEVICES"
    environment = {key: value for key, value in os.environ.items() if key != name}
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        raylet = Path(f"/proc/{os.getppid()}/environ").read_text(errors="replace").split("\0")
        environment.update(
            (name, line[len(name) + 1 :]) for line in raylet if line.startswith(f"{name}=")
        )
        done = subprocess.run(
            [sys.executable, "-c", _TORCH],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TORCH_S,
            check=True,
        )
        devices, _, cuda = done.stdout.strip().partition(" ")
        return {"cuda": cuda, "devices": int(devices)}
    return {}


def _startable() -> dict[str, Any] | None:
    """The nodes that the autoscaler on this node may start; None if no autoscaler runs here.

    Its config may hold secrets, so only resources, labels and limits leave the node. A cluster
    that cannot grow has an autoscaler without a config, which gives no node types.
    """
    import ray

    gcs_option = (
        f"--gcs-address={ray.get_runtime_context().gcs_address}"  # a machine may have several
    )
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        words: list[str] = []
        with suppress(OSError):  # it ended just now, or is another user's
            words = process.read_bytes().decode(errors="replace").split("\0")
        if gcs_option in words and any(word.endswith("/monitor.py") for word in words):
            option = "--autoscaling-config="
            files = [word.removeprefix(option) for word in words if word.startswith(option)]
            return _node_types(files[0]) if files and files[0] else {}
    return None


def _node_types(file: str) -> dict[str, Any] | None:
    import yaml

    try:
        config = yaml.safe_load(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    most = config.get("max_workers", 0)
    return {
        name: {
            "resources": dict(node_type.get("resources") or {}),
            "labels": dict(node_type.get("labels") or {}),
            "max_workers": node_type.get("max_workers", most),
        }
        for name, node_type in (config.get("available_node_types") or {}).items()
    }


def _error_text(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
