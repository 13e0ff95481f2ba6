"""The capture of a CUDA graph, and protection from operations that a capture forbids."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tune_sentcl.errors import CaptureError, first_line
from tune_sentcl.model.device import PINNING, without_gc


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Protect a capture from whatever would break or change it, inside this block.

    A resumed training captures anew and must draw the same noise, so the random state is restored.
    Garbage collection may free another graph, and another thread may pin memory; a capture forbids
    both.
    """
    noise = torch.cuda.get_rng_state(device)
    with torch.enable_grad(), PINNING, without_gc():
        try:
            yield
        finally:
            if not has_failed():
                torch.cuda.set_rng_state(noise, device)


def has_failed() -> bool:
    """Whether a failed capture ends the current block; a CUDA call would hide its error."""
    return isinstance(sys.exception(), CaptureError)


def captured(call: Callable[[], None], **mode: Any) -> torch.cuda.CUDAGraph:
    """Capture the CUDA work of a call as a graph; only replays of the graph compute.

    Args:
        call: Reads and writes tensors whose addresses do not change.
        mode: The stream and the memory pool, as for `torch.cuda.graph`.

    Raises:
        CaptureError: The call does something that a capture forbids, or memory does not suffice.
    """
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local", **mode):
            call()
    except RuntimeError as error:
        # After a failed capture, torch's random generator stays in capture mode, so this process
        # can no longer use the GPU.
        text = f"a CUDA graph could not be captured: {first_line(error)}"
        raise CaptureError(f"{text}. {CaptureError.variable}=0 trains without graphs") from error
    return graph
