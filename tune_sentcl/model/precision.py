"""The precision of an encoder in training; `auto` times both on the device."""

import time
from typing import Any, Literal

import numpy as np
import torch

from tune_sentcl.model.device import wait_for
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokens import Tokens

Precision = Literal["fp32", "bf16", "auto"]

_GAIN = 1.15  # bf16 costs digits, so its gain must exceed the noise of timing
_ROUNDS = 3
_HOPELESS = 3  # stop early: a CPU that emulates bf16 takes ten times as long
_INPUTS, _LENGTH = 16, 16  # a small batch of short sentences

# Whether bf16 paid off, by everything that decides an encoder's speed; holds no encoder.
_tried: dict[tuple[object, ...], bool] = {}


def trains_in_bf16(precision: Precision, encoder: Encoder) -> bool:
    """Whether an encoder's forward pass in training runs under bfloat16 autocast.

    `auto` times both precisions on a small batch, once a process for each architecture and device.
    It restores gradients, torch's random streams and the encoder's mode.
    """
    if precision != "auto":
        return precision == "bf16"
    config: Any = encoder.transformer.config
    trained = sum(weight.numel() for weight in encoder.parameters() if weight.requires_grad)
    key = (str(encoder.device), torch.get_num_threads(), encoder.packed, trained, str(config))
    if key not in _tried:
        _tried[key] = _pays(encoder)
    return _tried[key]


def _pays(encoder: Encoder) -> bool:
    before = encoder.trains_in_bf16, encoder.training
    gradients = [weight.grad for weight in encoder.parameters()]
    encoder.zero_grad()  # detaches them, so that the trial's steps do not add to them
    devices = [encoder.device] if encoder.device.type == "cuda" else []
    seconds = {False: float("inf"), True: float("inf")}
    try:
        encoder.train()
        with torch.random.fork_rng(devices=devices):
            for made in range(_ROUNDS + 1):  # the best of each counts, so the first is a warm-up
                if made > 1 and seconds[True] > _HOPELESS * seconds[False]:
                    break
                for bf16 in seconds:
                    encoder.trains_in_bf16 = bf16
                    seconds[bf16] = min(seconds[bf16], _step(encoder))
    finally:
        encoder.trains_in_bf16 = before[0]
        encoder.train(before[1])
        for weight, gradient in zip(encoder.parameters(), gradients, strict=True):
            weight.grad = gradient
    return seconds[False] > _GAIN * seconds[True]


def _step(encoder: Encoder) -> float:
    """The seconds of a forward and a backward pass."""
    length = min(_LENGTH, encoder.train_length)
    words = encoder.plain_vocabulary()[: _INPUTS * length]
    ids = np.resize(words, (_INPUTS, length)).tolist()
    wait_for(encoder.device)
    start = time.perf_counter()
    encoder(Tokens.of(ids)).sum().backward()
    wait_for(encoder.device)
    encoder.zero_grad()
    return time.perf_counter() - start
