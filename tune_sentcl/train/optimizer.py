"""The optimizer and its schedule as functions of the config."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from tune_sentcl.config import OptimizerConfig


def learning_rate_factor(config: OptimizerConfig, step: int, total: int) -> float:
    """What the learning rate is multiplied by at a step.

    The rate climbs linearly over the first int(warmup x total) steps. Step 0 of a warm-up has rate
    0, as the authors' scheduler has it. Then it stays (`constant`) or falls linearly to 0 after
    the last step (`linear`).

    Args:
        config: Schedule and warm-up.
        step: The step about to be taken, from 0.
        total: All steps of the trial.
    """
    warmup = int(config.warmup * total)
    if step < warmup:
        return step / warmup
    if config.schedule == "linear":
        return max(0.0, (total - step) / (total - warmup))
    return 1.0


def build_optimizer(
    parameters: Iterable[nn.Parameter], config: OptimizerConfig, total: int
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Make the optimizer and the schedule that moves its rate; call both once a step."""
    optimizer = torch.optim.AdamW(
        parameters, lr=config.lr, eps=config.eps, weight_decay=config.weight_decay
    )
    return optimizer, LambdaLR(optimizer, lambda step: learning_rate_factor(config, step, total))
