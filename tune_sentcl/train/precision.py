"""The choice of a training's arithmetic."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tune_sentcl.arithmetic import Arithmetic, tensor_cores
from tune_sentcl.config import Precision
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.device import has_bf16
from tune_sentcl.model.encoder import Encoder


def arithmetic(precision: Precision, method: AnyMethod, *, resumed: bool) -> Arithmetic:
    """Choose the arithmetic of a training; fp32 with a frozen encoder.

    `auto` is bf16 on a GPU that supports it, else fp32; no timing decides, so neither a clock nor
    a machine's load chooses a trial's arithmetic. tf32 becomes fp32 on devices without TF32.

    Args:
        precision: `optimizer.precision`.
        method: The method; its encoder is on the training's device.
        resumed: Whether the encoder already has the arithmetic of a resumed state, which stays.

    Raises:
        ConfigError: bf16 is asked for on a GPU without it.
    """
    encoder = method.encoder
    if not isinstance(encoder, Encoder):
        # The encoder is frozen, so only small layers train; bf16 or TF32 would not make them
        # faster.
        return "fp32"
    device = encoder.device
    has = has_bf16(device)
    if precision == "bf16" and device.type == "cuda" and not has:
        major, minor = torch.cuda.get_device_capability(device)
        rule = f"needs a GPU of compute capability 8.0 or more, but this GPU has {major}.{minor}"
        move = "Set fp32, or auto, which uses what the GPU supports."
        raise ConfigError(Fault("optimizer.precision", value=precision, rule=rule, move=move))
    if resumed:
        return encoder.arithmetic if has or encoder.arithmetic != "tf32" else "fp32"
    if precision == "auto":
        return "bf16" if has else "fp32"
    return "fp32" if precision == "tf32" and not has else precision


@contextmanager
def computing_in(method: AnyMethod, kind: Arithmetic) -> Iterator[None]:
    """Run the forward and backward passes of a training in an arithmetic, inside this block."""
    if isinstance(method.encoder, Encoder):
        method.encoder.arithmetic = kind
    with tensor_cores(method.device, allowed=kind == "tf32"):
        yield
