"""The training loop: batch, loss, gradient, update, in the order they happen."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.rows.batches import batches
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.errors import DataError, Fault, NonFiniteError
from tune_sentcl.methods import AnyMethod, StepLoss, method_class
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.seeding import stream
from tune_sentcl.train.optimizer import build_optimizer
from tune_sentcl.train.parts import Parts
from tune_sentcl.train.state import Moving, TrainingState

_CURVE_POINTS = 200


@dataclass(frozen=True)
class Step:
    """One update that has been made.

    Attributes:
        number: How many updates have been made, from 1.
        total: How many the trial makes.
        epoch: Passes over the rows so far, with fraction.
        samples: Rows seen so far.
        losses: `loss` and its terms in nats, and the method's rates, where this step is a point of
            the curves; else empty.
        parts: In how many parts its batch was taken.
        state: What the training is now; to be called before the next step is asked for.
    """

    number: int
    total: int
    epoch: float
    samples: int
    losses: dict[str, float]
    parts: int
    state: Callable[[], TrainingState] = field(repr=False, compare=False)


def train(
    method: AnyMethod,
    corpus: Corpus,
    config: TrialConfig,
    resumed: TrainingState | None = None,
    parts: int = 1,
    *,
    accumulate: bool = False,
) -> Generator[Step, None, None]:
    """Train in place; yields after each update, so that the caller may evaluate or stop there.

    Dropout draws from torch's global generator, which the caller seeds; all other chance comes
    from the trial's named streams. A batch in parts (`train.parts`) is a step like any other: the
    order of the rows, the clipping and the schedule are those of whole batches, and so are the
    weights to rounding, but for dropout, whose noise differs where the parts do.

    Args:
        method: Its encoder and its heads are trained, on their own device.
        corpus: The rows.
        config: The trial.
        resumed: What an equal training was at a step; this one goes on from there as that one did,
            in as many parts.
        parts: How many parts each batch is taken in at first.
        accumulate: Whether a batch that does not fit the device's memory is taken again in twice
            as many parts, and so on down to one row, as are all that follow it.

    Raises:
        OutOfMemoryError: A batch does not fit, and cannot be taken in more parts.
        NonFiniteError: The loss is not a finite number.
        DataError: The rows cannot be dealt into batches that the method can learn from.
        KeyError, RuntimeError, ValueError: `resumed` is of another training.
        ValueError: There are several parts, and the method couples the rows of a batch.
    """
    method.fit(corpus)
    total = count_steps(corpus, config)
    if not total:
        return
    parameters = [*method.encoder.parameters(), *method.heads.parameters()]
    optimizer, schedule = build_optimizer(parameters, config.optimizer, total)
    moving = Moving(
        method.encoder, method.heads, optimizer, schedule, stream(config.seed, "candidates")
    )
    spacing = max(1, total // _CURVE_POINTS)
    if isinstance(method.encoder, Encoder):
        method.encoder.trains_in_bf16 = config.optimizer.precision == "bf16"
    method.encoder.train()
    method.heads.train()
    if resumed is not None:
        moving.restore(resumed)
        parts = max(parts, resumed.parts)
    taking = Parts(method, parts, grows=accumulate)
    number = samples = 0
    for epoch in range(config.optimizer.epochs):
        for rows in _epoch(corpus, config, epoch):
            number += 1
            samples += len(rows)
            if resumed is not None and number <= resumed.number:
                continue
            loss = taking.gradient(Batch(corpus, rows), moving.draws)
            if config.optimizer.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, config.optimizer.max_grad_norm)
            optimizer.step()
            schedule.step()
            # Reading a loss waits for the device, so the curves have a bounded number of points.
            shown = number % spacing == 0 or number in (1, total)
            losses = _finite_losses(loss, number) if shown else {}
            done, parts = samples / len(corpus), taking.count
            state = partial(moving.state, number, samples, parts)
            yield Step(number, total, done, samples, losses, parts, state)


def count_steps(corpus: Corpus, config: TrialConfig) -> int:
    """How many updates a trial makes.

    Raises:
        DataError: The rows cannot be dealt into batches that the method can learn from.
    """
    first = check_batches(corpus, config)
    if config.data.order != "shuffled_groups":
        return first * config.optimizer.epochs
    rest = range(1, config.optimizer.epochs)
    return first + sum(len(_epoch(corpus, config, epoch)) for epoch in rest)


def check_batches(corpus: Corpus, config: TrialConfig) -> int:
    """See that the method can learn from every batch of the first epoch.

    Returns:
        How many batches that are; 0 where the method takes no steps.

    Raises:
        DataError: The rows cannot be dealt into such batches.
    """
    if not config.method.takes_steps:
        return 0
    method = method_class(config.method)
    dealt = _epoch(corpus, config, 0)
    shortest = min(map(len, dealt))
    if shortest < method.smallest_batch:
        rule = (
            f"method {config.method.name} needs {method.smallest_batch} rows or more in every "
            f"batch, and one of {corpus.source} has {shortest}"
        )
        move = "Set data.drop_last=true, or another optimizer.batch_size."
        if config.optimizer.batch_size < method.smallest_batch:
            move = f"Set optimizer.batch_size to {method.smallest_batch} or more."
        elif len(corpus) < method.smallest_batch:
            move = "Take more rows."
        value = str(config.optimizer.batch_size)
        raise DataError(Fault(corpus.source, "optimizer.batch_size", value, rule, move))
    return len(dealt)


def _epoch(corpus: Corpus, config: TrialConfig, epoch: int) -> list[np.ndarray]:
    generator = stream(config.seed, "order", epoch)
    size, order = config.optimizer.batch_size, config.data.order
    return batches(corpus, size, order, generator, drop_last=config.data.drop_last)


def _finite_losses(loss: StepLoss, number: int) -> dict[str, float]:
    losses = {"loss": loss.total.item()}
    losses.update({f"loss.{name}": part.item() for name, part in loss.parts.items()})
    losses.update({f"rate.{name}": rate for name, rate in loss.rates.items()})
    for name, value in losses.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"{name} must be finite, but is {value} at step {number}")
    return losses
