"""Nodes that are about to go, as Ray knows of them: spot instances that got notice."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import ray

_LOOK_S = 3.0
"""A cloud's notice comes half a minute before the end, or two."""
_NODE_ID = re.compile(r"\b[0-9a-f]{56}\b")


def draining() -> frozenset[str]:
    """The ids of nodes that drain; none where this Ray does not say, for the call is private."""
    with suppress(AttributeError, ImportError, ray.exceptions.RayError, RuntimeError):
        from ray._private.state import state

        return frozenset(state.get_draining_nodes())
    return frozenset()


def _drained_nodes() -> set[str]:
    """The ids of nodes that are gone, and drained before; none where this Ray does not say."""
    with suppress(AttributeError, ImportError, KeyError, ValueError):
        from ray.core.generated import common_pb2

        name = getattr(common_pb2, "NodeDeathInfo").Reason.Name  # noqa: B009 - made at run time
        gone = [node for node in ray.nodes() if not node["Alive"]]
        return {node["NodeID"] for node in gone if "DRAIN" in name(node["DeathReason"])}
    return set()


@contextmanager
def watch_draining() -> Iterator[Callable[[], bool]]:
    """Whether the node of this process drains, looked at every few seconds while the body runs."""
    node, end, found = ray.get_runtime_context().get_node_id(), threading.Event(), [False]
    found[0] = node in draining()

    def look() -> None:
        while not found[0] and not end.wait(_LOOK_S):
            found[0] = node in draining()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: found[0]
    finally:
        end.set()


class DrainingNodes:
    """What a driver has seen of nodes that drain, those included that are gone by now."""

    def __init__(self) -> None:
        """None yet."""
        self._seen: set[str] = set()

    def look(self) -> None:
        """See which nodes drain now."""
        self._seen |= draining()

    def caused(self, text: str) -> bool:
        """Whether the end of a worker, by what Ray says of it, came with such a node."""
        named = set(_NODE_ID.findall(text))
        return not named.isdisjoint(self._seen | _drained_nodes())
