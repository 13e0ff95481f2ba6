"""The optimizers' update rules for many trials at once, each with its own numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor

from tune_sentcl.config import AdamwConfig, LarsConfig, OptimizerConfig, SgdConfig

_MEAN, _SQUARE = 0.9, 0.999  # the betas, which no config moves

Numbers = Mapping[str, Tensor]
"""A number a lane by name, shaped to go with the lanes' weights."""


@dataclass(frozen=True)
class Rule:
    """How the weights of many lanes move.

    Attributes:
        moments: What is kept of a weight from step to step, as torch's optimizer names it.
        numbers: The numbers of one lane at a step: from its config, the step from 1, its rate.
        update: Changes weights, slopes and moments in place; `decays` says whether weight decay
            and trust ratio apply to them.
    """

    moments: tuple[str, ...]
    numbers: Callable[[OptimizerConfig, int, float], dict[str, float]]
    update: Callable[[Tensor, Tensor, Sequence[Tensor], Numbers, bool], None]


def stacked_rule(config: OptimizerConfig) -> Rule:
    """The rule that does for many lanes what `build_optimizer` gives one trial."""
    match config:
        case AdamwConfig():
            return Rule(("exp_avg", "exp_avg_sq"), _adamw_numbers, _adamw)
        case SgdConfig():
            return Rule(("momentum_buffer",), _sgd_numbers, _sgd)
        case LarsConfig():
            return Rule(("velocity",), _lars_numbers, _lars)
        case _ as unknown:
            assert_never(unknown)


def added_epsilon(config: AdamwConfig, step: int) -> float:
    """The epsilon that torch's AdamW adds at a step, from 1; see `RawEpsilonAdamW`."""
    return config.eps / math.sqrt(1 - _SQUARE**step) if config.eps_added == "raw" else config.eps


def _adamw_numbers(config: OptimizerConfig, step: int, rate: float) -> dict[str, float]:
    if not isinstance(config, AdamwConfig):
        raise TypeError(f"{config.name} is not adamw")
    return {
        "kept": 1 - rate * config.weight_decay,
        "rate": -rate / (1 - _MEAN**step),
        "root": math.sqrt(1 - _SQUARE**step),
        "eps": added_epsilon(config, step),
    }


def _adamw(
    weight: Tensor, slope: Tensor, moments: Sequence[Tensor], numbers: Numbers, decays: bool
) -> None:
    mean, square = moments
    if decays:
        weight.mul_(numbers["kept"])
    mean.lerp_(slope, 1 - _MEAN)
    square.mul_(_SQUARE).addcmul_(slope, slope, value=1 - _SQUARE)
    scale = square.sqrt().div_(numbers["root"]).add_(numbers["eps"])
    weight.add_((mean * numbers["rate"]).div_(scale))


def _sgd_numbers(config: OptimizerConfig, step: int, rate: float) -> dict[str, float]:
    if not isinstance(config, SgdConfig):
        raise TypeError(f"{config.name} is not sgd")
    return {"rate": -rate, "decay": config.weight_decay, "momentum": config.momentum}


def _sgd(
    weight: Tensor, slope: Tensor, moments: Sequence[Tensor], numbers: Numbers, decays: bool
) -> None:
    (velocity,) = moments
    if decays:
        slope.addcmul_(weight, numbers["decay"])
    velocity.mul_(numbers["momentum"]).add_(slope)
    # Without momentum, Nesterov's look ahead adds nothing.
    slope.addcmul_(velocity, numbers["momentum"])
    weight.addcmul_(slope, numbers["rate"])


def _lars_numbers(config: OptimizerConfig, step: int, rate: float) -> dict[str, float]:
    if not isinstance(config, LarsConfig):
        raise TypeError(f"{config.name} is not lars")
    return {
        "rate": rate,
        "decay": config.weight_decay,
        "momentum": config.momentum,
        "trust": config.trust,
    }


def _lars(
    weight: Tensor, slope: Tensor, moments: Sequence[Tensor], numbers: Numbers, decays: bool
) -> None:
    (velocity,) = moments
    if decays:
        slope.addcmul_(weight, numbers["decay"])
        size, steep = (lane_norms(tensor) for tensor in (weight, slope))
        ratio = torch.where((size > 0) & (steep > 0), numbers["trust"] * size / steep, 1.0)
        slope.mul_(ratio)
    velocity.mul_(numbers["momentum"])
    velocity.addcmul_(slope, numbers["rate"])
    weight.sub_(velocity)


def lane_norms(tensor: Tensor) -> Tensor:
    """The Euclidean norm of each lane of a tensor, shaped to go with it."""
    across = tuple(range(1, tensor.ndim))
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=across, keepdim=True)
    return norms
