"""The training loop, the optimizer and its schedule."""

from tune_sentcl.train.loop import (
    Step,
    check_batches,
    count_steps,
    rows_left_out,
    train,
)
from tune_sentcl.train.optimizer import build_optimizer, learning_rate_factor

__all__ = [
    "Step",
    "build_optimizer",
    "check_batches",
    "count_steps",
    "learning_rate_factor",
    "rows_left_out",
    "train",
]
