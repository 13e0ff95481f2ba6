"""Nodes that Ray is about to remove (drains), such as spot instances after their notice."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import ray

_LOOK_S = 3.0
"""Seconds between two looks; clouds give notice 30 to 120 s before the end."""


def draining() -> frozenset[str]:
    """Ids of draining nodes; empty if this version of Ray lacks the private call."""
    with suppress(AttributeError, ImportError, ray.exceptions.RayError, RuntimeError):
        from ray._private.state import state

        return frozenset(state.get_draining_nodes())
    return frozenset()


@contextmanager
def watch_draining() -> Iterator[Callable[[], bool]]:
    """Watch in a thread whether this process's node drains; yields a function that returns it.

    A thread, because a call to a head that does not answer would block the training.
    """
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
