"""Checks before the first trial, so that a search which could never run is refused at once.

The rules are pure functions over what is known of a cluster; `survey` asks the nodes. Imports no
Ray.
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

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.tuning.resources import Bundle, Node, trials_to_request

DISTRIBUTION = "tune-sentcl"
_EXACT = ("python", DISTRIBUTION, "torch", "transformers", "ray")
ACCELERATOR = "ray.io/accelerator-type"
"""The label by which Ray says which GPU a node has."""


@dataclass(frozen=True)
class NodeStatus:
    """What is known of a node.

    Attributes:
        name: Its host, with the start of its id where several nodes share one.
        node: Its cores, GPUs and memory.
        silent: Why it has not answered; empty where it has, and all below is known.
        versions: Versions of Python and packages, empty where one is missing.
        checkpoints: Whether each can be read there, and its fingerprint or why not.
        storage_fault: Why the node does not share the study's place with the driver; empty where
            it does.
        cuda: The version of CUDA that its torch was built for; empty: none, or not asked.
        devices: How many GPUs its torch sees; None: not asked, or not known.
    """

    name: str
    node: Node
    silent: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    storage_fault: str = ""
    cuda: str = ""
    devices: int | None = None


@dataclass(frozen=True)
class Kind:
    """Nodes of one type that an autoscaler may start, `most` at a time."""

    name: str
    node: Node
    most: int


@dataclass(frozen=True)
class ClusterStatus:
    """What is known of a cluster.

    Attributes:
        nodes: The nodes that are up.
        kinds: The nodes that may be started; None where an autoscaler may run that does not say.
    """

    nodes: Sequence[NodeStatus]
    kinds: Sequence[Kind] | None = ()


@dataclass(frozen=True)
class Expected:
    """What a search needs of every node: a place, versions, and fingerprints of encoders."""

    study: str
    versions: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """What a search may count on.

    Attributes:
        cluster: What is known of the cluster.
        trial: What each trial takes of a node.
        faults: Why the search cannot be run there.
        warnings: What does not stop the search, and the user should know.
    """

    cluster: ClusterStatus
    trial: Bundle
    faults: list[Fault]
    warnings: list[str]

    def check(self) -> None:
        """Check that the search can be run.

        Raises:
            ResourceError: It cannot; every fault is listed.
        """
        if self.faults:
            raise ResourceError(self.faults)

    def side_by_side(self, nodes: Sequence[Node]) -> int:
        """How many trials fit the nodes that are up by now, and those that may be started."""
        fit = self._fit(nodes)
        if self.cluster.kinds is None:  # it may grow by an unknown number of nodes
            return 2 * fit
        startable = sum(kind.most * kind.node.slots(self.trial) for kind in self.cluster.kinds)
        return max(fit, startable)

    def at_once(self, nodes: Sequence[Node], running: int, queued: int) -> int:
        """How many trials to have under way on the nodes that are up by now."""
        return trials_to_request(self._fit(nodes), self.side_by_side(nodes), running, queued)

    def _fit(self, nodes: Sequence[Node]) -> int:
        return sum(node.slots(self.trial) for node in nodes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The nodes that are up, and those that may be started, for a table."""
        listed = [
            (status.name, status.silent or "up", status.node) for status in self.cluster.nodes
        ]
        for kind in self.cluster.kinds or ():
            listed.append((kind.name, f"up to {kind.most} may be started", kind.node))
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
    """The names of this package's direct dependencies, and of those of some of its extras.

    Without the package's metadata, as when it runs from bare sources, there are none.
    """
    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    kinds = [{"extra": extra} for extra in ("", *extras)]
    wanted = map(Requirement, texts)
    return [r.name for r in wanted if r.marker is None or any(map(r.marker.evaluate, kinds))]


def own_versions(extras: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python, this package and its dependencies in this process."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in (DISTRIBUTION, *dependencies(extras)):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def check_address(address: str) -> None:
    """See that something listens at HOST:PORT; Ray itself tries for minutes, then exits.

    Raises:
        ResourceError: Nothing answers there.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise no_cluster(address, error) from None


def no_cluster(address: str, error: Exception) -> ResourceError:
    """Say that an address leads to no Ray cluster."""
    rule = f"must be the address of a Ray cluster that answers ({error})"
    move = "Correct it, start the cluster, or take --address local."
    return ResourceError(Fault("--address", "", address, rule, move))


def no_entrance(address: str, why: str) -> ResourceError:
    """Say that a cluster wants a token."""
    rule = f"this cluster lets in who has its token, and {why}"
    move = (
        "Set RAY_AUTH_MODE=token, and give the cluster's token: RAY_AUTH_TOKEN, "
        "RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."
    )
    return ResourceError(Fault("--address", "", address, rule, move))


def faults(cluster: ClusterStatus, trial: Bundle, expected: Expected) -> list[Fault]:
    """Everything because of which trials would wait for ever, fail, or be lost.

    A fault that several nodes share is one, and names them.

    Args:
        cluster: What is known of it.
        trial: What each trial takes of a node.
        expected: What a search needs of every node.
    """
    found: dict[Fault, list[str]] = {}
    for node in cluster.nodes:
        for fault in _of_node(node, trial, expected):
            found.setdefault(fault, []).append(node.name)
    shared = [
        replace(fault, value=f"{fault.value} on {_names(names)}".strip())
        for fault, names in found.items()
    ]
    return [*unfit(cluster, trial), *shared]


def unfit(cluster: ClusterStatus, trial: Bundle) -> Iterator[Fault]:
    """No node that is up, or that may be started, holds a trial."""
    kinds = cluster.kinds
    nodes = [status.node for status in cluster.nodes] + [kind.node for kind in kinds or ()]
    if kinds is None or any(node.slots(trial) for node in nodes):
        return
    options = "--cpus-per-trial, --gpus-per-trial"
    options += ", --memory-per-trial" * bool(trial.memory)
    options += ", --accelerator" * (trial.accelerator is not None)
    memory = bool(trial.memory)
    up = _counted(_shown(status.node, memory) for status in cluster.nodes)
    more = _counted(_shown(kind.node, memory) for kind in kinds)
    have = up + (f"; to be started: {more}" if more else "")
    rule, move = (
        f"must fit one node of the cluster ({have})",
        "Ask for less, or start a larger node.",
    )
    yield Fault(options, "", str(trial), rule, move)


def _of_node(node: NodeStatus, trial: Bundle, expected: Expected) -> Iterator[Fault]:
    if node.silent:
        move = "Repeat the command, or take the node out of the cluster."
        yield Fault(
            "--address", "", "", f"every node must answer, and this one {node.silent}", move
        )
        return
    if node.storage_fault:
        rule = (
            f"every node must share the study's place with the driver, "
            f"and this one {node.storage_fault}"
        )
        move = "Take a shared disk, or an object store's URL."
        yield Fault("--study", "", expected.study, rule, move)
    for name, ours in expected.versions.items():
        theirs, move = node.versions.get(name, ""), f"Install {name} {ours} on it."
        if not theirs:
            yield Fault("--address", name, "none", "every node must have it", move)
        elif theirs != ours and name in _EXACT:
            yield Fault(
                "--address", name, theirs, f"every node must have the driver's, {ours}", move
            )
    for name, ours in expected.checkpoints.items():
        can, theirs = node.checkpoints.get(name, (False, "it was not tried"))
        if not can or theirs != ours:
            other = f"reads other bytes ({theirs}) than the driver ({ours})"
            rule = (
                f"every node must read it, and this one {other if can else f'cannot ({theirs})'}"
            )
            move = "Give every node the same files and hub revisions."
            yield Fault("encoder.checkpoint", "", name, rule, move)
    yield from _unseen_gpus(node, trial)


def _unseen_gpus(node: NodeStatus, trial: Bundle) -> Iterator[Fault]:
    """The node's torch sees fewer GPUs than the node offers to Ray, so that trials would fail."""
    fits = trial.gpus > 0 and node.node.slots(trial)
    if fits and node.devices is not None and node.devices < node.node.gpus:
        built = f"for CUDA {node.cuda}" if node.cuda else "without CUDA"
        torch = f"torch {node.versions.get('torch', '')} {built}"
        rule = "torch must see every GPU that a node offers to Ray"
        rule += f" ({node.node.gpus:g} on offer there, and {torch} sees {node.devices})"
        move = (
            "Install a torch for this GPU's driver there, start the node with as many GPUs as it "
            "has, or give --gpus-per-trial 0."
        )
        yield Fault("--gpus-per-trial", "", f"{trial.gpus:g}", rule, move)


def warnings(cluster: ClusterStatus, trial: Bundle) -> Iterator[str]:
    """What does not stop a search, and its user should know."""
    if any(status.node.slots(trial) for status in cluster.nodes):
        return
    text = f"no node that is up holds a trial ({trial})"
    if cluster.kinds is None:
        yield f"{text}: trials wait until there is one"
    elif any(kind.node.slots(trial) for kind in cluster.kinds):
        yield f"{text}: the autoscaler has to start one"


def node_of(resources: Mapping[str, float], labels: Mapping[str, str]) -> Node:
    """A node from Ray's resources and labels."""
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    return Node(cpus, gpus, resources.get("memory", 0.0), labels.get(ACCELERATOR))


def kinds_of(startable: Mapping[str, Any]) -> list[Kind]:
    """The nodes of an autoscaler's node types; a resource without a count has no limit."""
    found = []
    for name, kind in startable.items():
        resources = {"CPU": math.inf, "memory": math.inf, **kind["resources"]}
        prefix = "accelerator_type:"  # Ray's own detection writes such a resource
        types = [word.removeprefix(prefix) for word in resources if word.startswith(prefix)]
        labels = {ACCELERATOR: types[0]} if types else {}
        if kind["max_workers"] > 0:
            node = node_of(resources, labels | kind["labels"])
            found.append(Kind(name, node, kind["max_workers"]))
    return found


def _shown(node: Node, memory: bool) -> str:
    return f"{node}, {node.memory / 1e9:.3g} GB" if memory else str(node)


def _counted(kinds: Iterable[str]) -> str:
    found = Counter(kinds)
    return "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in found.items())


def _names(names: list[str]) -> str:
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")
