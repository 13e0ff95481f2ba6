"""The optimizer and its schedule as functions of the config."""

import math
from collections.abc import Iterable
from typing import Any, assert_never

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from tune_sentcl.config import (
    AdamwConfig,
    LarsConfig,
    OptimizerBase,
    OptimizerConfig,
    SgdConfig,
)
from tune_sentcl.train.lars import Lars


class RawEpsilonAdamW(torch.optim.AdamW):
    r"""AdamW with epsilon added before the bias correction of the second moment.

    torch divides by $\sqrt{v / (1 - \beta_2^t)} + \epsilon$, transformers' own AdamW divided by
    $(\sqrt{v} + \epsilon) / \sqrt{1 - \beta_2^t}$: the same with an epsilon that is 32 times as
    large at the first step and comes down over some thousand. Weight decay stays torch's, before
    the step; SCL has none. Arguments as for torch's.

    References:
        huggingface/transformers 3.0.2, optimization.py.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take over parameters, as torch's does."""
        super().__init__(*args, **kwargs)
        for group in self.param_groups:  # so that a state of the optimizer has them
            group |= {"steps_taken": 0, "added_eps": group["eps"]}

    def step(self, closure: Any = None) -> Any:
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            group["steps_taken"] += 1
            correction = 1 - group["betas"][1] ** group["steps_taken"]
            group["eps"] = group["added_eps"] / math.sqrt(correction)
        return super().step(closure)


# One pass over the weights instead of a dozen; torch refuses it elsewhere.
_FUSED_ON = ("cpu", "cuda")


def learning_rate_factor(config: OptimizerBase, step: int, total: int) -> float:
    """What the learning rate is multiplied by at a step.

    The rate climbs linearly over the warm-up, whose step 0 has rate 0, as the schedulers of all
    three papers have it. Then it stays (`constant`), or falls linearly or along half a cosine to 0
    after the last step.

    Args:
        config: Schedule and warm-up.
        step: The step about to be taken, from 0.
        total: All steps of the trial.
    """
    warmup = warmup_steps(config, total)
    if step < warmup:
        return step / warmup
    done = (step - warmup) / max(1, total - warmup)
    match config.schedule:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - done)
        case "cosine":
            return (1.0 + math.cos(math.pi * min(1.0, done))) / 2


def warmup_steps(config: OptimizerBase, total: int) -> int:
    """How many steps the warm-up has: int(warmup x total), or `warmup_epochs` epochs of steps."""
    if config.warmup_epochs is not None:
        return min(total, round(config.warmup_epochs * total / config.epochs))
    return int(config.warmup * total)


def build_optimizer(
    parameters: Iterable[nn.Parameter], config: OptimizerConfig, total: int
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Make the optimizer and the schedule that moves its rate; call both once a step.

    Frozen parameters are none of its.
    Weight decay leaves biases and norms alone: all parameters of one dimension.
    """
    weights = [weight for weight in parameters if weight.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [w for w in weights if w.ndim > 1]},
        {"params": [w for w in weights if w.ndim <= 1], "weight_decay": 0.0},
    ]
    fused = all(weight.device.type in _FUSED_ON for weight in weights)
    optimizer = _optimizer([group for group in groups if group["params"]], config, fused)
    return optimizer, LambdaLR(optimizer, lambda step: learning_rate_factor(config, step, total))


def _optimizer(
    groups: list[dict[str, Any]], config: OptimizerConfig, fused: bool
) -> torch.optim.Optimizer:
    decay = config.weight_decay
    match config:
        case AdamwConfig():
            kind = RawEpsilonAdamW if config.eps_added == "raw" else torch.optim.AdamW
            return kind(groups, lr=config.lr, eps=config.eps, weight_decay=decay, fused=fused)
        case SgdConfig():
            nesterov = config.momentum > 0
            return torch.optim.SGD(
                groups,
                lr=config.lr,
                momentum=config.momentum,
                weight_decay=decay,
                nesterov=nesterov,
                fused=fused,
            )
        case LarsConfig():
            adapted = [{**g, "adapt": "weight_decay" not in g} for g in groups]
            return Lars(adapted, config.lr, config.momentum, decay, config.trust)
        case _ as unknown:
            assert_never(unknown)
