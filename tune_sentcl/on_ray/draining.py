"""Nodes that Ray is about to remove (drains), such as spot instances after their notice."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import ray

_LOOK_S = 3.0
"""Seconds between two looks; clouds give notice 30 to 120 s before the end."""
_NODE_ID = re.compile(r"\b[0-9a-f]{56}\b")


def draining() -> frozenset[str]:
    """Ids of draining nodes; empty if this version of Ray lacks the private call."""
    with suppress(AttributeError, ImportError, ray.exceptions.RayError, RuntimeError):
        from ray._private.state import state

        return frozenset(state.get_draining_nodes())
    return frozenset()


def _drained_nodes() -> set[str]:
    """Ids of dead nodes that drained before; empty if this version of Ray does not report it."""
    with suppress(AttributeError, ImportError, KeyError, ValueError):
        from ray.core.generated import common_pb2

        name = getattr(common_pb2, "NodeDeathInfo").Reason.Name  # noqa: B009 - made at run time
        gone = [node for node in ray.nodes() if not node["Alive"]]
        return {node["NodeID"] for node in gone if "DRAIN" in name(node["DeathReason"])}
    return set()


@contextmanager
def watch_draining() -> Iterator[Callable[[], bool]]:
    """Watch in a thread whether this process's node drains; yields a function that returns it."""
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
    """The nodes that a driver has seen draining, including those that are dead now."""

    def __init__(self) -> None:

        self._seen: set[str] = set()

    def look(self) -> None:
        """Add the nodes that drain now."""
        self._seen |= draining()

    def caused(self, text: str) -> bool:
        """Whether Ray's text on a lost worker names a node that drains or drained."""
        named = set(_NODE_ID.findall(text))
        return not named.isdisjoint(self._seen | _drained_nodes())
