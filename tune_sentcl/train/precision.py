"""The arithmetic of a training; `auto` times the training's own batch on its GPU."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch

from tune_sentcl.config import Precision
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.device import (
    Arithmetic,
    has_tf32,
    is_out_of_memory,
    tensor_cores,
    wait_for,
)
from tune_sentcl.model.encoder import Encoder

_ROUNDS = 3
_STEPS = 5  # without a wait between them, as in training, where host and GPU work side by side

# The choices of this process, by everything that decides a step's speed; holds no encoder.
_chosen: dict[tuple[object, ...], Arithmetic] = {}


def arithmetic(
    precision: Precision, method: AnyMethod, batch: Batch, step: Callable[[], Any]
) -> Arithmetic:
    """The arithmetic of a training.

    Without TF32, as on a CPU, all but bf16 is fp32, and so is all with a frozen encoder. Else
    `auto` times steps in each arithmetic and takes the fastest, once a process for each encoder,
    method, data and batch size. It restores all that the steps change: gradients, torch's random
    streams, and buffers such as the statistics of batch normalization. With deterministic
    algorithms it is fp32.

    Args:
        precision: `optimizer.precision`.
        method: Its encoder and heads are on the training's device.
        batch: The first.
        step: A forward and a backward pass over a batch.
    """
    encoder = method.encoder
    if not isinstance(encoder, Encoder):
        return "fp32"  # of the small network, which is not worth a rounding
    if precision != "bf16" and not has_tf32(encoder.device):
        return "fp32"
    if precision != "auto":
        return precision
    if torch.are_deterministic_algorithms_enabled():
        return "fp32"  # a clock would decide
    trained = sum(weight.numel() for weight in encoder.parameters() if weight.requires_grad)
    method_and_encoder = str(method.config), str(encoder.transformer.config)
    shape = len(batch), batch.corpus.source, encoder.train_length
    key = (str(encoder.device), encoder.packed, trained, *shape, *method_and_encoder)
    if key not in _chosen:
        _chosen[key] = _fastest(method, encoder, step)
        if encoder.runner is not None:  # the other kinds' graphs are of no use
            encoder.runner.release()
    return _chosen[key]


def began_in(method: AnyMethod) -> Arithmetic | None:
    """The arithmetic of a resumed training, if its device has it; None: a frozen encoder."""
    encoder = method.encoder
    if not isinstance(encoder, Encoder):
        return None
    is_gone = encoder.arithmetic == "tf32" and not has_tf32(encoder.device)
    return "fp32" if is_gone else encoder.arithmetic


@contextmanager
def computing_in(method: AnyMethod, kind: Arithmetic) -> Iterator[None]:
    """Forward and backward passes of a training in some arithmetic."""
    if isinstance(method.encoder, Encoder):
        method.encoder.arithmetic = kind
    with tensor_cores(method.device, allowed=kind == "tf32"):
        yield


def _fastest(method: AnyMethod, encoder: Encoder, step: Callable[[], Any]) -> Arithmetic:
    kinds = get_args(Arithmetic)
    seconds = dict.fromkeys(kinds, float("inf"))
    with _unchanged(method, encoder):
        for _ in range(_ROUNDS + 1):  # the best of each counts, so the first is a warm-up
            for kind in kinds:
                with computing_in(method, kind):
                    seconds[kind] = min(seconds[kind], _timed(encoder, step))
    chosen: Arithmetic = min(kinds, key=seconds.__getitem__)
    return chosen


def _timed(encoder: Encoder, step: Callable[[], Any]) -> float:
    """The seconds of steps; infinite if the batch does not fit the memory."""
    weights = [*encoder.parameters()]  # `zero_grad` would search the modules in each step
    wait_for(encoder.device)
    start = time.perf_counter()
    try:
        for _ in range(_STEPS):
            for weight in weights:
                weight.grad = None
            step()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    else:
        wait_for(encoder.device)
        seconds = time.perf_counter() - start
        encoder.zero_grad()
        return seconds
    encoder.zero_grad()
    return _timed(encoder, step) if encoder.drop_runner() else float("inf")


@contextmanager
def _unchanged(method: AnyMethod, encoder: Encoder) -> Iterator[None]:
    parts = (encoder, method.heads)
    weights = [weight for part in parts for weight in part.parameters()]
    gradients = [weight.grad for weight in weights]
    buffers = [(buffer, buffer.clone()) for part in parts for buffer in part.buffers()]
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    before = encoder.arithmetic
    for weight in weights:
        weight.grad = None
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        encoder.arithmetic = before
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
