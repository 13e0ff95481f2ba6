"""The capture of a CUDA graph, and what must not happen during one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tune_sentcl.errors import CaptureError, first_line
from tune_sentcl.model.device import PINNING, without_gc


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Keep off, inside this block, what a capture forbids or changes.

    A resumed training captures anew, and must draw the same noise. A collection may free another
    graph, and another thread may pin memory, both of which a capture forbids.
    """
    noise = torch.cuda.get_rng_state(device)
    with torch.enable_grad(), PINNING, without_gc():
        try:
            yield
        finally:
            if not has_failed():
                torch.cuda.set_rng_state(noise, device)


def has_failed() -> bool:
    """Whether a failed capture ends the present block: no CUDA call may hide its error then."""
    return isinstance(sys.exception(), CaptureError)


def captured(call: Callable[[], None], **mode: Any) -> torch.cuda.CUDAGraph:
    """A graph of what a call launches; only its replays compute anything.

    Args:
        call: Reads and writes tensors at addresses that stay.
        mode: The stream and the pool of memory, as for `torch.cuda.graph`.

    Raises:
        CaptureError: The call does what a capture forbids, or takes more memory than there is.
    """
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local", **mode):
            call()
    except RuntimeError as error:
        # Torch's generator stays in its capture, so this process is of no use any more.
        text = f"a CUDA graph could not be captured: {first_line(error)}"
        raise CaptureError(f"{text}. {CaptureError.variable}=0 trains without graphs") from error
    return graph
