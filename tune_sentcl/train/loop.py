"""The training loop: batch, loss, gradient, update, in the order they happen."""

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.batches import batches
from tune_sentcl.data.nli import NliCorpus
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.methods import Method, PairBatch, StepLoss
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.seeding import stream
from tune_sentcl.train.optimizer import build_optimizer

_CURVE_POINTS = 200


@dataclass(frozen=True)
class Step:
    """One update that has been made.

    Attributes:
        number: How many updates have been made, from 1.
        total: How many the trial makes.
        epoch: Passes over the rows so far, with fraction.
        samples: Rows seen so far.
        losses: `loss` and its terms in nats, where this step is a point of the curves; else empty.
    """

    number: int
    total: int
    epoch: float
    samples: int
    losses: dict[str, float]


def train(
    encoder: Encoder, method: Method, corpus: NliCorpus, config: TrialConfig
) -> Generator[Step, None, None]:
    """Train in place; yields after each update, so that the caller may evaluate or stop there.

    Dropout draws from torch's global generator, which the caller seeds; all other chance comes
    from the trial's named streams.

    Args:
        encoder: Trained in place, on its own device.
        method: Its heads are trained too.
        corpus: The labeled rows.
        config: The trial.

    Raises:
        NonFiniteError: The loss is not a finite number.
        DataError: A premise's group does not fit the batch.
    """
    premises, hypotheses, labels = corpus.premises, corpus.hypotheses, corpus.labels
    total = count_steps(corpus, config)
    parameters = [*encoder.parameters(), *method.heads.parameters()]
    optimizer, schedule = build_optimizer(parameters, config.optimizer, total)
    draws = stream(config.seed, "candidates")
    spacing = max(1, total // _CURVE_POINTS)
    encoder.train()
    method.heads.train()
    number = samples = 0
    for epoch in range(config.optimizer.epochs):
        for rows in _epoch(corpus, config, epoch):
            batch = PairBatch(
                [premises[row] for row in rows], [hypotheses[row] for row in rows], labels[rows]
            )
            loss = _loss(encoder, method, batch, config, draws)
            optimizer.zero_grad()
            loss.total.backward()
            if config.optimizer.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, config.optimizer.max_grad_norm)
            optimizer.step()
            schedule.step()
            number += 1
            samples += len(rows)
            # Reading a loss waits for the device, so the curves have a bounded number of points.
            shown = number % spacing == 0 or number in (1, total)
            losses = _finite_losses(loss, number) if shown else {}
            yield Step(number, total, samples / len(corpus), samples, losses)


def count_steps(corpus: NliCorpus, config: TrialConfig) -> int:
    """How many updates a trial makes."""
    return sum(len(_epoch(corpus, config, epoch)) for epoch in range(config.optimizer.epochs))


def _epoch(corpus: NliCorpus, config: TrialConfig, epoch: int) -> list[np.ndarray]:
    generator = stream(config.seed, "order", epoch)
    return batches(corpus, config.optimizer.batch_size, config.data.order, generator)


def _loss(
    encoder: Encoder,
    method: Method,
    batch: PairBatch,
    config: TrialConfig,
    draws: np.random.Generator,
) -> StepLoss:
    device = next(encoder.parameters()).device.type
    with torch.autocast(device, torch.bfloat16, enabled=config.optimizer.precision == "bf16"):
        return method.loss(encoder, batch, draws)


def _finite_losses(loss: StepLoss, number: int) -> dict[str, float]:
    losses = {"loss": loss.total.item()}
    losses.update({f"loss.{name}": part.item() for name, part in loss.parts.items()})
    for name, value in losses.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"{name} must be finite, but is {value} at step {number}")
    return losses
