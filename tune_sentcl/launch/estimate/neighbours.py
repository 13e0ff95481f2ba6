"""Company while something is timed: trials that run side by side share memory and caches."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import torch

_ROWS, _WIDTH, _INNER = 1024, 384, 1536  # a feed-forward layer of a small encoder


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many other threads as busy as a trial's would be, on the CPU.

    Their work is one layer's products over arrays that no core's own cache holds. torch lets go
    of Python's lock in it, so that they cost the timed thread what a neighbour's process does.
    """
    if count <= 0:
        yield
        return
    done = Event()
    with ThreadPoolExecutor(count) as pool:
        for _ in range(count):
            pool.submit(_work, done)
        try:
            yield
        finally:
            done.set()


def _work(done: Event) -> None:
    rows, inner, outer = (
        torch.ones(shape) for shape in ((_ROWS, _WIDTH), (_WIDTH, _INNER), (_INNER, _WIDTH))
    )
    with torch.inference_mode():
        while not done.is_set():
            torch.nn.functional.gelu(rows @ inner) @ outer
