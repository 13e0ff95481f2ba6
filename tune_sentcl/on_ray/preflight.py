"""Checks of a cluster before the first trial: a node's answers, and the rules that judge them.

`survey` asks the nodes. Imports no Ray.
"""

import importlib.metadata
import os
import platform
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tune_sentcl.errors import (
    CheckpointError,
    ConfigError,
    Fault,
    ResourceError,
    StudyError,
    first_line,
    first_names,
    refuse_credentials,
)
from tune_sentcl.tuning.resources import Bundle, Node

DISTRIBUTION = "tune-sentcl"
ACCELERATOR = "ray.io/accelerator-type"
"""The label with which Ray names a node's GPU type."""

_EXACT = ("python", DISTRIBUTION, "torch", "transformers", "ray")
_LEAST_DISK = 1e9  # bytes


@dataclass(frozen=True)
class NodeStatus:
    """A node, and its answers to five questions.

    Attributes:
        name: Its host, with the start of its id if several nodes share a host.
        node: Its cores, GPUs and memory.
        no_answer: Why the node did not answer; empty if it did.
        versions: Versions of Python and packages; a missing package is left out.
        cuda: The CUDA version of its torch; empty if torch was built without CUDA.
        devices: Number of GPUs that its torch sees; None: unknown.
        storage_fault: Why node and driver do not share the study's storage; empty if they do.
        checkpoints: The fingerprint of each encoder, or why the node cannot read it.
        free_disk: Free bytes where it keeps caches; None: unknown.
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


def dependencies(extras: Sequence[str] = ()) -> list[str]:
    """Names of this package's direct dependencies, including those of the given extras.

    The list is empty without the package's metadata, as when it runs from bare sources.
    """
    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    environments = [{"extra": extra} for extra in ("", *extras)]
    wanted = map(Requirement, texts)
    return [
        r.name for r in wanted if r.marker is None or any(map(r.marker.evaluate, environments))
    ]


def installed_versions(extras: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, this package and its dependencies in this process."""
    return _versions((DISTRIBUTION, *dependencies(extras)))


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def check_address(address: str) -> None:
    """Check that a server listens at HOST:PORT; Ray itself tries for minutes and then exits."""
    refuse_credentials("--address", "", address)
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise no_cluster_error(address, error) from None


def no_cluster_error(address: str, error: Exception) -> ResourceError:
    """The error that no Ray cluster answers at an address."""
    rule = f"must be the address of a Ray cluster that answers ({error})"
    move = "Correct it, start the cluster, give the cluster's token, or take --address local."
    if address == "auto":
        move = "It may be somebody else's: name yours by --address HOST:PORT, or start it."
    return ResourceError(Fault("--address", "", address, rule, move))


def authentication_error(address: str, why: str) -> ResourceError:
    """The error that a cluster requires another token."""
    rule = f"this cluster requires its token, and {why}"
    move = (
        "Set RAY_AUTH_MODE=token, and give the cluster's token: RAY_AUTH_TOKEN, "
        "RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."
    )
    return ResourceError(Fault("--address", "", address, rule, move))


def describe_node(
    folder: str, packages: Sequence[str], checkpoints: Sequence[str], gpus: bool, *file: str
) -> dict[str, Any]:
    """A node's answers, fields of `NodeStatus`; runs on the node.

    Heavy libraries are imported late, because the versions say best what a node lacks.

    Args:
        folder: The driver's working directory, from which relative paths start.
        packages: Names of the packages that the search needs.
        checkpoints: Encoders to read.
        gpus: Whether trials take GPUs.
        file: The study's location, and the name of a file that the driver has written there.
    """
    storage_fault = _storage_fault(*file) if file else ""
    with suppress(OSError):  # the driver's folder may not exist here
        os.chdir(folder)
    disk = os.environ.get("TUNE_SENTCL_CACHE") or Path.home()
    return {
        "versions": _versions(packages),
        "storage_fault": storage_fault,
        "checkpoints": {name: _fingerprint(name) for name in checkpoints},
        "free_disk": shutil.disk_usage(disk).free if Path(disk).is_dir() else None,
        **(_devices() if gpus else {}),
    }


def _storage_fault(location: str, name: str) -> str:
    from tune_sentcl.store.files import StudyFiles

    try:
        files = StudyFiles.at(location)
        if not files.exists(name):
            return "does not see it"
        files.write_bytes(name, b"")
    except StudyError as error:
        return f"cannot use it: {first_line(error)}"
    return ""


def _fingerprint(checkpoint: str) -> str:
    try:
        from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint

        return resolve_checkpoint(checkpoint).fingerprint
    except (ImportError, CheckpointError, ConfigError) as error:
        return f"nothing ({first_line(error)})"


def _devices() -> dict[str, Any]:
    """The CUDA version of torch and the number of GPUs that it sees; empty without torch."""
    try:
        import torch
    except ImportError:
        return {}
    # torch sees only one of several MIG slices; Ray gives each slice to another worker.
    slices = os.environ.get("CUDA_VISIBLE_DEVICES", "").count("MIG-")
    devices = torch.cuda.device_count()
    devices = max(devices, slices) if devices else 0
    return {"cuda": torch.version.cuda or "", "devices": devices}


def faults(
    nodes: Sequence[NodeStatus], trial: Bundle, driver: NodeStatus, study: str
) -> list[Fault]:
    """Every reason for which trials would fail or lose their results.

    A fault that several nodes share is reported once and names the nodes. Nodes must have the
    driver's versions and encoders.
    """
    found: dict[Fault, list[str]] = {}
    for node in nodes:
        for fault in _node_faults(node, trial, driver, study):
            found.setdefault(fault, []).append(node.name)
    return [
        replace(fault, value=f"{fault.value} on {first_names(names)}".strip())
        for fault, names in found.items()
    ]


def _node_faults(
    node: NodeStatus, trial: Bundle, driver: NodeStatus, study: str
) -> Iterator[Fault]:
    if node.no_answer:
        rule = f"every node must answer, and this one {node.no_answer}"
        move = "Repeat the command, install what the node lacks, or take it out of the cluster."
        yield Fault("--address", "", "", rule, move)
        return
    if node.storage_fault:
        rule = "every node must share the study's storage with the driver, and this one"
        move = "Take a shared disk, or an object store's URL."
        yield Fault("--study", "", study, f"{rule} {node.storage_fault}", move)
    for name, required in driver.versions.items():
        found = node.versions.get(name, "none")
        if found == "none" or (found != required and name in _EXACT):
            rule, move = f"every node must have the driver's, {required}", "Install it there."
            yield Fault("--address", name, found, rule, move)
    for name, required in driver.checkpoints.items():
        found = node.checkpoints.get(name, "nothing")
        if found != required:
            rule = f"every node must read the driver's files ({required}), and this one reads"
            move = "Give every node the same files and hub revisions."
            yield Fault("encoder.checkpoint", "", name, f"{rule} {found}", move)
    if trial.gpus and node.devices is not None and node.devices < node.node.gpus:
        built = f"for CUDA {node.cuda}" if node.cuda else "without CUDA"
        rule = f"torch must see the {node.node.gpus:g} GPUs that the node offers to Ray, and torch"
        rule += f" {node.versions.get('torch', '')} {built} sees {node.devices}"
        move = "Install a torch build for its GPU driver, or give --gpus-per-trial 0."
        yield Fault("--gpus-per-trial", "", f"{trial.gpus:g}", rule, move)


def warnings(nodes: Sequence[NodeStatus], trial: Bundle) -> Iterator[str]:
    """Yield notes for the user that do not stop a search."""
    if not any(status.node.slots(trial) for status in nodes):
        have = "; ".join(dict.fromkeys(str(status.node) for status in nodes))
        text = f"no node that is up fits a trial ({trial}; nodes: {have}): trials wait for one"
        yield text if trial.gpus else f"{text}. Give --gpus-per-trial if it will have GPUs."
    for status in nodes:
        if status.free_disk is not None and status.free_disk < _LEAST_DISK:
            yield f"{status.name} has {status.free_disk / 1e9:.1f} GB of free disk for caches"


def node_of(resources: Mapping[str, float], labels: Mapping[str, str]) -> Node:
    """A node from Ray's resources and labels."""
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    return Node(cpus, gpus, resources.get("memory", 0.0), labels.get(ACCELERATOR))
