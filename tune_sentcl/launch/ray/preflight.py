"""Checks before the first trial: what could never run is refused at once, not left pending.

The rules are pure functions over what is known of a cluster; `probe` finds that out.
"""

import importlib.metadata
import platform
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from packaging.requirements import Requirement

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.ray.facts import ClusterFacts, Expected, NodeFacts
from tune_sentcl.launch.slots import Bundle, Node

DISTRIBUTION = "tune-sentcl"
_EXACT = ("python", DISTRIBUTION, "torch", "transformers", "ray")
_LOOPBACK = ("127.", "localhost", "::1", "[::1]")


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


def faults(cluster: ClusterFacts, trial: Bundle, expected: Expected) -> list[Fault]:
    """Everything because of which trials would wait for ever, fail, or be lost.

    Args:
        cluster: What is known of it.
        trial: What each trial takes of a node.
        expected: What a search needs of every node.
    """
    answered = [node for node in cluster.nodes if not node.silent]
    fit = [node for node in answered if node.node.slots(trial)]
    return [
        *unfit(cluster, trial),
        *silent(cluster.nodes),
        *out_of_reach(answered, expected.study),
        *other_packages(answered, expected),
        *other_checkpoints(answered, expected),
        *unseen_gpus(fit, trial),
        *too_little_memory(fit, trial, expected),
    ]


def unfit(cluster: ClusterFacts, trial: Bundle) -> Iterator[Fault]:
    """No node that is up, or that may be started, holds a trial."""
    kinds = cluster.kinds
    nodes = [fact.node for fact in cluster.nodes] + [kind.node for kind in kinds or ()]
    if kinds is None or any(node.slots(trial) for node in nodes):
        return
    options = "--cpus-per-trial, --gpus-per-trial"
    options += ", --memory-per-trial" * bool(trial.memory)
    options += ", --accelerator" * (trial.accelerator is not None)
    memory = bool(trial.memory)
    up = _counted(_shown(fact.node, memory) for fact in cluster.nodes)
    more = _counted(_shown(kind.node, memory) for kind in kinds)
    have = up + (f"; to be started: {more}" if more else "")
    rule, move = (
        f"must fit one node of the cluster ({have})",
        "Ask for less, or start a larger node.",
    )
    yield Fault(options, "", str(trial), rule, move)


def silent(nodes: Sequence[NodeFacts]) -> Iterator[Fault]:
    """A node does not answer."""
    for why in dict.fromkeys(node.silent for node in nodes if node.silent):
        rule = f"every node must be at work, but it {why}"
        move = "Repeat the command, or take the node out of the cluster."
        yield Fault("--address", "", _names(n for n in nodes if n.silent == why), rule, move)


def out_of_reach(nodes: Sequence[NodeFacts], study: str) -> Iterator[Fault]:
    """A node does not see the study's folder, so that its trials would be lost."""
    for why in dict.fromkeys(node.reach for node in nodes if node.reach):
        blind = _names(node for node in nodes if node.reach == why)
        rule = f"must be a folder that every node sees, but {blind} {why}"
        move = "Take a shared disk, or an object store's URL."
        yield Fault("--study", "", study, rule, move)


def other_packages(nodes: Sequence[NodeFacts], expected: Expected) -> Iterator[Fault]:
    """A node lacks a package, or has another version of what must be the same everywhere."""
    for name, ours in expected.versions.items():
        found: dict[str, list[NodeFacts]] = {}
        for node in nodes:
            theirs = node.versions.get(name, "")
            if theirs != ours and (not theirs or name in _EXACT):
                found.setdefault(theirs, []).append(node)
        for theirs, which in found.items():
            rule = f"every node must have the driver's, {ours}" if theirs else "is missing there"
            move = f"Install {name} {ours} on it."
            yield Fault("--address", name, f"{theirs or 'none'} on {_names(which)}", rule, move)


def other_checkpoints(nodes: Sequence[NodeFacts], expected: Expected) -> Iterator[Fault]:
    """A node cannot read an encoder, or reads another one under its name."""
    for name, ours in expected.checkpoints.items():
        found: dict[str, list[NodeFacts]] = {}
        for node in nodes:
            can, theirs = node.checkpoints.get(name, (False, "it was not looked at"))
            if not can:
                found.setdefault(f"cannot be read there ({theirs})", []).append(node)
            elif theirs != ours:
                rule = f"has other bytes there ({theirs}) than the driver's ({ours})"
                found.setdefault(rule, []).append(node)
        for rule, which in found.items():
            move = "Give every node the same files and hub revisions."
            yield Fault("encoder.checkpoint", "", f"{name} on {_names(which)}", rule, move)


def unseen_gpus(nodes: Sequence[NodeFacts], trial: Bundle) -> Iterator[Fault]:
    """A node's torch sees fewer GPUs than the node offers to Ray, so that trials would fail."""
    found: dict[str, list[NodeFacts]] = {}
    for node in nodes:
        if trial.gpus > 0 and node.devices is not None and node.devices < node.node.gpus:
            built = f"for CUDA {node.cuda}" if node.cuda else "without CUDA"
            torch = f"torch {node.versions.get('torch', '')} {built}"
            found.setdefault(
                f"{node.node.gpus:g} on offer there, and {torch} sees {node.devices}", []
            ).append(node)
    for told, which in found.items():
        rule = f"torch must see every GPU that a node offers to Ray ({told})"
        move = (
            "Install a torch for this GPU's driver there, start the node with as many GPUs as it "
            "has, or give --gpus-per-trial 0."
        )
        yield Fault("--gpus-per-trial", "", f"{trial.gpus:g} on {_names(which)}", rule, move)


def too_little_memory(
    nodes: Sequence[NodeFacts], trial: Bundle, expected: Expected
) -> Iterator[Fault]:
    """A node that could be given a trial has less memory than such a trial has taken."""
    small = [n for n in nodes if n.memory_bytes < expected.host_bytes]
    if small:
        rule = f"a trial of this study has taken {_gb(expected.host_bytes)} of memory"
        value = f"{_names(small)} has {_gb(min(n.memory_bytes for n in small))}"
        yield Fault("--address", "", value, rule, "Take larger nodes, or smaller trials.")
    share = min(1.0, trial.gpus)
    held = {n.name: share * min(n.gpu_bytes) for n in nodes if n.gpu_bytes}
    short = [
        n for n in nodes if share and held.get(n.name, expected.gpu_bytes) < expected.gpu_bytes
    ]
    if short:
        rule = f"a trial of this study has taken {_gb(expected.gpu_bytes)} of GPU memory"
        value = f"{share:g} of a GPU of {_names(short)}, {_gb(min(held[n.name] for n in short))}"
        move = "Give a trial more of a GPU, or a larger one (--accelerator)."
        yield Fault("--gpus-per-trial", "", value, rule, move)


def warnings(cluster: ClusterFacts, trial: Bundle) -> Iterator[str]:
    """What a search can live with, and its user should know."""
    open_to = [
        n for n in cluster.nodes if not n.silent and not n.token and not _loopback(n.address)
    ]
    if open_to:
        where = [_names(open_to)]
        if not _loopback(cluster.dashboard):
            where.append(f"its dashboard at {cluster.dashboard}")
        yield (
            f"this cluster has no token: whoever reaches {' or '.join(where)} can run code on all "
            "nodes; start it with RAY_AUTH_MODE=token"
        )
    if not any(fact.node.slots(trial) for fact in cluster.nodes):
        known = cluster.kinds is not None
        then = "the autoscaler has to start one" if known else "trials wait until there is one"
        yield f"no node that is up holds a trial ({trial}): {then}"


def _loopback(address: str) -> bool:
    return not address or address.startswith(_LOOPBACK)


def _shown(node: Node, memory: bool) -> str:
    return f"{node}, {node.memory / 1e9:.3g} GB" if memory else str(node)


def _counted(kinds: Iterable[str]) -> str:
    found = Counter(kinds)
    return "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in found.items())


def _names(nodes: Iterable[NodeFacts]) -> str:
    names = [node.name for node in nodes]
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
