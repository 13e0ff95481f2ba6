"""Checks of a cluster before the first trial: pure functions over the status of its nodes.

`survey` collects the status. Imports no Ray.
"""

import importlib.metadata
import math
import platform
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.requirements import Requirement

from tune_sentcl.errors import Fault, ResourceError, first_names, refuse_credentials
from tune_sentcl.tuning.resources import Bundle, Node, trials_to_request

DISTRIBUTION = "tune-sentcl"
_EXACT = ("python", DISTRIBUTION, "torch", "transformers", "ray")
ACCELERATOR = "ray.io/accelerator-type"
"""The label with which Ray names a node's GPU type."""


@dataclass(frozen=True)
class NodeStatus:
    """The status of a node.

    Attributes:
        name: Its host, with the start of its id if several nodes share a host.
        node: Its cores, GPUs and memory.
        no_answer: Why the node did not answer; empty if it did, and the fields below are known.
        versions: Versions of Python and packages; empty if one is missing.
        checkpoints: For each encoder whether the node can read it, and its fingerprint or the
            error.
        storage_fault: Why node and driver do not share the study's storage; empty if they do.
        cuda: The CUDA version of its torch; empty: none, or not asked.
        devices: Number of GPUs that its torch sees; None: not asked, or unknown.
    """

    name: str
    node: Node
    no_answer: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    storage_fault: str = ""
    cuda: str = ""
    devices: int | None = None


@dataclass(frozen=True)
class NodeType:
    """A node type of which an autoscaler may start `most` nodes."""

    name: str
    node: Node
    most: int


@dataclass(frozen=True)
class ClusterStatus:
    """Nodes that are up and types that may be started; None: an autoscaler's are unknown."""

    nodes: Sequence[NodeStatus]
    node_types: Sequence[NodeType] | None = ()


@dataclass(frozen=True)
class NodeRequirements:
    """The study's storage, versions and encoder fingerprints that every node must have."""

    study: str
    versions: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """The result of the checks of a cluster.

    Attributes:
        cluster: The status of the cluster.
        trial: The resources of each trial.
        faults: Why the search cannot run there.
        warnings: Notes for the user that do not stop the search.
    """

    cluster: ClusterStatus
    trial: Bundle
    faults: list[Fault]
    warnings: list[str]

    def check(self) -> None:
        """Raise ResourceError with all faults, if there are any."""
        if self.faults:
            raise ResourceError(self.faults)

    def max_parallel(self, nodes: Sequence[Node]) -> int:
        """Trials that fit the nodes that are up and those that may be started."""
        fit = self._num_slots(nodes)
        if self.cluster.node_types is None:  # the cluster may grow by an unknown number of nodes
            return 2 * fit
        startable = sum(
            node_type.most * node_type.node.slots(self.trial)
            for node_type in self.cluster.node_types
        )
        return max(fit, startable)

    def num_to_request(self, nodes: Sequence[Node], running: int, queued: int) -> int:
        """Trials to request on the nodes that are up; see `trials_to_request`."""
        return trials_to_request(self._num_slots(nodes), self.max_parallel(nodes), running, queued)

    def _num_slots(self, nodes: Sequence[Node]) -> int:
        return sum(node.slots(self.trial) for node in nodes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Table rows of the nodes that are up and of those that may be started."""
        listed = [
            (status.name, status.no_answer or "up", status.node) for status in self.cluster.nodes
        ]
        for node_type in self.cluster.node_types or ():
            listed.append(
                (node_type.name, f"up to {node_type.most} may be started", node_type.node)
            )
        for name, state, node in listed:
            yield {
                "node": name,
                "state": state,
                "CPU": node.cpus,
                "GPU": node.gpus,
                "GB": round(node.memory / 1e9, 1),
                "accelerator": node.accelerator or "",
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
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in (DISTRIBUTION, *dependencies(extras)):
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
    move = "Correct it, start the cluster, or take --address local."
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


def faults(cluster: ClusterStatus, trial: Bundle, requirements: NodeRequirements) -> list[Fault]:
    """Every reason for which trials would wait for ever, fail, or lose their results.

    A fault that several nodes share is reported once and names the nodes.
    """
    found: dict[Fault, list[str]] = {}
    for node in cluster.nodes:
        for fault in _node_faults(node, trial, requirements):
            found.setdefault(fault, []).append(node.name)
    shared = [
        replace(fault, value=f"{fault.value} on {first_names(names)}".strip())
        for fault, names in found.items()
    ]
    return [*no_fitting_node(cluster, trial), *shared]


def no_fitting_node(cluster: ClusterStatus, trial: Bundle) -> Iterator[Fault]:
    """Yield a fault if no node that is up or may be started fits a trial."""
    node_types = cluster.node_types
    nodes = [status.node for status in cluster.nodes] + [
        node_type.node for node_type in node_types or ()
    ]
    if node_types is None or any(node.slots(trial) for node in nodes):
        return
    options = "--cpus-per-trial, --gpus-per-trial"
    options += ", --memory-per-trial" * bool(trial.memory)
    options += ", --accelerator" * (trial.accelerator is not None)
    memory = bool(trial.memory)
    up = _counted(_shown(status.node, memory) for status in cluster.nodes)
    more = _counted(_shown(node_type.node, memory) for node_type in node_types)
    have = up + (f"; to be started: {more}" if more else "")
    rule, move = (
        f"must fit one node of the cluster ({have})",
        "Ask for less, or start a larger node.",
    )
    yield Fault(options, "", str(trial), rule, move)


def _node_faults(
    node: NodeStatus, trial: Bundle, requirements: NodeRequirements
) -> Iterator[Fault]:
    if node.no_answer:
        move = "Repeat the command, or take the node out of the cluster."
        yield Fault(
            "--address", "", "", f"every node must answer, and this one {node.no_answer}", move
        )
        return
    if node.storage_fault:
        rule = (
            f"every node must share the study's storage with the driver, "
            f"and this one {node.storage_fault}"
        )
        move = "Take a shared disk, or an object store's URL."
        yield Fault("--study", "", requirements.study, rule, move)
    for name, required in requirements.versions.items():
        found, move = node.versions.get(name, ""), f"Install {name} {required} on it."
        if not found:
            yield Fault("--address", name, "none", "every node must have it", move)
        elif found != required and name in _EXACT:
            yield Fault(
                "--address", name, found, f"every node must have the driver's, {required}", move
            )
    for name, required in requirements.checkpoints.items():
        can, found = node.checkpoints.get(name, (False, "it was not tried"))
        if not can or found != required:
            other = f"reads other bytes ({found}) than the driver ({required})"
            rule = f"every node must read it, and this one {other if can else f'cannot ({found})'}"
            move = "Give every node the same files and hub revisions."
            yield Fault("encoder.checkpoint", "", name, rule, move)
    yield from _unseen_gpus(node, trial)


def _unseen_gpus(node: NodeStatus, trial: Bundle) -> Iterator[Fault]:
    """Yield a fault if the node's torch sees fewer GPUs than the node offers to Ray."""
    fits = trial.gpus > 0 and node.node.slots(trial)
    if fits and node.devices is not None and node.devices < node.node.gpus:
        built = f"for CUDA {node.cuda}" if node.cuda else "without CUDA"
        torch = f"torch {node.versions.get('torch', '')} {built}"
        rule = "torch must see every GPU that a node offers to Ray"
        rule += f" ({node.node.gpus:g} offered, and {torch} sees {node.devices})"
        move = (
            "Install a torch build for its GPU driver, start the node with as many GPUs as it "
            "has, or give --gpus-per-trial 0."
        )
        yield Fault("--gpus-per-trial", "", f"{trial.gpus:g}", rule, move)


def warnings(cluster: ClusterStatus, trial: Bundle) -> Iterator[str]:
    """Yield notes for the user that do not stop a search."""
    if any(status.node.slots(trial) for status in cluster.nodes):
        return
    text = f"no node that is up holds a trial ({trial})"
    if cluster.node_types is None:
        yield f"{text}: trials wait until there is one"
    elif any(node_type.node.slots(trial) for node_type in cluster.node_types):
        yield f"{text}: the autoscaler has to start one"


def node_of(resources: Mapping[str, float], labels: Mapping[str, str]) -> Node:
    """A node from Ray's resources and labels."""
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    return Node(cpus, gpus, resources.get("memory", 0.0), labels.get(ACCELERATOR))


def node_types_of(startable: Mapping[str, Any]) -> list[NodeType]:
    """The node types of an autoscaler; a resource without a count has no limit."""
    found = []
    for name, node_type in startable.items():
        resources = {"CPU": math.inf, "memory": math.inf, **node_type["resources"]}
        prefix = "accelerator_type:"  # Ray's own detection writes such a resource
        types = [word.removeprefix(prefix) for word in resources if word.startswith(prefix)]
        labels = {ACCELERATOR: types[0]} if types else {}
        if node_type["max_workers"] > 0:
            node = node_of(resources, labels | node_type["labels"])
            found.append(NodeType(name, node, node_type["max_workers"]))
    return found


def _shown(node: Node, memory: bool) -> str:
    return f"{node}, {node.memory / 1e9:.3g} GB" if memory else str(node)


def _counted(texts: Iterable[str]) -> str:
    found = Counter(texts)
    return "; ".join(f"{count} x {text}" if count > 1 else text for text, count in found.items())
