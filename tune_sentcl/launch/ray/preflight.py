"""Checks before the first trial: what could never run is refused at once, not left pending."""

import socket
import uuid
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.slots import Node, gpus_a_trial

_ANSWER_S = 120.0  # a busy node starts its first worker in half a minute


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


def cluster_nodes() -> list[Node]:
    """The cluster's nodes, as many as are up by now."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(found.get("CPU", 0.0), found.get("GPU", 0.0)) for found in resources]


def check_fit(cpus: int, gpus: float | None) -> float:
    """See that some node of the cluster can run a trial.

    Args:
        cpus: CPU cores a trial.
        gpus: GPUs a trial; None: one where the cluster has any, else none.

    Returns:
        GPUs a trial.

    Raises:
        ResourceError: Every node is too small; without this the trials would wait for ever.
    """
    nodes = cluster_nodes()
    wanted = gpus_a_trial(gpus, nodes)
    if any(node.slots(cpus, wanted) for node in nodes):
        return wanted
    have = "; ".join(f"{node.cpus:g} CPU, {node.gpus:g} GPU" for node in nodes)
    raise ResourceError(
        Fault(
            "--cpus-per-trial, --gpus-per-trial",
            "",
            f"{cpus} CPU, {wanted:g} GPU",
            f"must fit one node of the cluster ({have})",
            "Ask for less, or start a larger node.",
        )
    )


def check_reach(study: str) -> None:
    """See that every node writes into the same study.

    Raises:
        ResourceError: A node does not see the driver's folder, so that its trials would be lost.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if "://" in study or len(nodes) < 2:
        return
    probe = Path(study) / f".probe-{uuid.uuid4().hex}"
    probe.touch()
    try:
        answers = {node["NodeID"]: _look(node, str(probe)) for node in nodes}
        ray.wait(list(answers.values()), num_returns=len(answers), timeout=_ANSWER_S)
        blind = [
            node["NodeManagerHostname"] for node in nodes if not _sees(answers[node["NodeID"]])
        ]
    finally:
        probe.unlink()
    if blind:
        raise ResourceError(
            Fault(
                "--study",
                "",
                study,
                f"must be a folder that every node sees, but {', '.join(blind)} does not",
                "Take a shared disk, or an object store's URL.",
            )
        )


def _look(node: dict[str, Any], path: str) -> "ray.ObjectRef[bool]":
    return (
        ray.remote(_exists)
        .options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        .remote(path)
    )


def _sees(answer: "ray.ObjectRef[bool]") -> bool:
    try:
        return ray.get(answer, timeout=0)
    except ray.exceptions.RayError:  # the node is gone, or does not answer
        return False


def _exists(path: str) -> bool:
    return Path(path).exists()
