"""The training loop: batch, loss, gradient and update."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from tune_sentcl.arithmetic import Arithmetic
from tune_sentcl.config import TrialConfig
from tune_sentcl.data.rows.batches import COUNTED, batches
from tune_sentcl.data.rows.corpus import Batch, Corpus, RowNumbers
from tune_sentcl.errors import DataError, Fault, NonFiniteError, OutOfMemoryError, first_line
from tune_sentcl.methods import AnyMethod, StepLoss, method_class
from tune_sentcl.model.device import is_out_of_memory
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.seeding import stream
from tune_sentcl.train.graphs import GraphedTransformer, graphed
from tune_sentcl.train.optimizer import build_optimizer, update
from tune_sentcl.train.precision import arithmetic, computing_in
from tune_sentcl.train.state import TrainingRun, TrainingState

_CURVE_POINTS = 200
# The number of batches that are drawn ahead, so that a step rarely waits for a slow batch.
_AHEAD = 4


@dataclass(frozen=True)
class Step:
    """One update of the weights.

    Attributes:
        number: Updates so far, from 1.
        total: Updates of the whole trial.
        epoch: Passes over the rows so far, including a fraction.
        samples: Rows seen so far.
        losses: `loss`, its terms and the method's rates, if this step is a point of the curves;
            else empty.
        arithmetic: The arithmetic of the step's matrix products.
        notes: The reasons why passes ran without a CUDA graph.
        state: Returns the training's state; call it before requesting the next step.
    """

    number: int
    total: int
    epoch: float
    samples: int
    losses: dict[str, float]
    arithmetic: Arithmetic
    notes: tuple[str, ...]
    state: Callable[[], TrainingState] = field(repr=False, compare=False)


def train(
    method: AnyMethod,
    corpus: Corpus,
    config: TrialConfig,
    resumed: TrainingState | None = None,
    prefetch: int = _AHEAD,
) -> Generator[Step, None, None]:
    """Train in place; yields after each update, when the caller may evaluate or stop.

    Dropout draws from torch's global generator, which the caller seeds. All other random numbers
    come from the trial's named streams.

    Args:
        method: The method whose encoder and heads are trained, on their current device.
        corpus: The rows.
        config: The trial.
        resumed: The state after a step of the same training, from which it resumes.
        prefetch: How many batches a thread may draw in advance, which does not change results; 0:
            none.

    Raises:
        OutOfMemoryError: A batch, or the optimizer's moments, do not fit the device.
        NonFiniteError: The loss is not a finite number.
        DataError: The method cannot learn from batches of these rows.
        KeyError, RuntimeError, ValueError: `resumed` is from another training.
    """
    method.fit(corpus)
    total = count_steps(corpus, config)
    if not total:
        return
    run = _begin(method, config, total, resumed)
    number = samples = 0
    if resumed is not None:
        number, samples = resumed.number, resumed.samples
    upcoming = (
        Batch(corpus, rows) for rows in islice(_epoch_batches(corpus, config), number, None)
    )
    rows_of_epoch = sum(corpus.epoch_sizes())
    kind = arithmetic(config.optimizer.precision, method, resumed=resumed is not None)
    with (
        closing(draw_ahead(method, upcoming, run.draws, prefetch)) as drawing,
        graphed(method) as notes,
    ):
        # `zero_grad` would search all modules for weights, which takes half a millisecond a step
        # with BERT.
        weights = [*method.encoder.parameters(), *method.heads.parameters()]
        for drawn in drawing:
            number, samples = number + 1, samples + len(drawn.batch)
            with computing_in(method, kind):
                loss = _new_gradient(method, weights, drawn)
            _update(run, weights, config.optimizer.max_grad_norm)
            method.after_step()
            # Reading a loss waits for the device, so a loss is read only at steps that are shown.
            losses = _finite_losses(loss, number) if is_shown(number, total) else {}
            state = partial(run.state, number, samples, drawn.after)
            epoch = samples / rows_of_epoch
            yield Step(number, total, epoch, samples, losses, kind, tuple(notes), state)


@dataclass(frozen=True)
class Drawn:
    """A batch that the method has drawn on the host.

    Attributes:
        batch: Its rows.
        drawn: The result of `Method.draw`.
        after: The drawing generator's state after this batch, from which a resumed training
            continues.
    """

    batch: Batch
    drawn: Any
    after: Mapping[str, Any]


def draw_ahead(
    method: AnyMethod, batches: Iterator[Batch], draws: np.random.Generator, most: int
) -> Generator[Drawn, None, None]:
    """Draw batches in order, up to `most` of them in a thread, in advance of their steps.

    One thread draws all, so the generator gives the same numbers as without a thread. An error is
    raised when its batch is requested. A batch that was drawn but not used has no effect, because
    a training resumes from the generator's state after the last used batch (`Drawn`).
    """

    def draw(batch: Batch) -> Drawn:
        drawn = method.draw(batch, draws)
        return Drawn(batch, drawn, draws.bit_generator.state)

    if not most:
        yield from map(draw, batches)
        return
    pool = ThreadPoolExecutor(1, "ahead")
    try:
        # The calling thread draws the first batch itself: this may tokenize the corpus or wait
        # until another process has tokenized it, and only in this thread can Ctrl-C interrupt it.
        first = [draw(batch) for batch in islice(batches, 1)]
        waiting = deque(pool.submit(draw, batch) for batch in islice(batches, most))
        yield from first
        while waiting:
            drawn = waiting.popleft()
            waiting.extend(pool.submit(draw, batch) for batch in islice(batches, 1))
            yield drawn.result()
    finally:
        pool.shutdown(cancel_futures=True)


def gradient(method: AnyMethod, drawn: Drawn) -> StepLoss:
    """Add a batch's gradient to the weights' gradients; return the loss."""
    loss = method.loss_of(drawn.drawn)
    loss.total.backward()
    return loss


def _new_gradient(method: AnyMethod, weights: list[torch.nn.Parameter], drawn: Drawn) -> StepLoss:
    """Replace the weights' gradients by those of a batch; if memory runs out, try without graphs.

    Raises:
        OutOfMemoryError: The batch does not fit the device.
    """
    for weight in weights:
        weight.grad = None
    try:
        return gradient(method, drawn)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        reason = first_line(error)
    # The retry runs after the handler: inside it, the exception's traceback would keep the step's
    # frames and graph in memory.
    if isinstance(method.encoder, Encoder) and method.encoder.drop_runner():
        return _new_gradient(method, weights, drawn)
    move = "Lower optimizer.batch_size, encoder.train_length or encoder.max_length."
    chunk = getattr(method.config, "chunk", 1)
    if chunk != 1:
        rest = "encode its sentences in chunks" if chunk is None else f"less than {chunk}"
        move = f"Set method.chunk to {rest}. Or lower{move.removeprefix('Lower')}"
    value, rule = f"a batch of {len(drawn.batch)} rows", "must fit the device's memory"
    fault = Fault("a training step", value=value, rule=rule, move=move)
    raise OutOfMemoryError(f"{fault}\n{reason}")


def _begin(
    method: AnyMethod, config: TrialConfig, total: int, resumed: TrainingState | None
) -> TrainingRun:
    """Make the optimizer, the schedule and the random streams, and restore `resumed` into them."""
    parameters = [*method.encoder.parameters(), *method.heads.parameters()]
    optimizer, schedule = build_optimizer(parameters, config.optimizer, total)
    draws = stream(config.seed, "candidates")
    run = TrainingRun(method.encoder, method.heads, optimizer, schedule, draws)
    method.encoder.train()
    method.heads.train()
    if resumed is not None:
        run.restore(resumed)
    return run


def _update(run: TrainingRun, parameters: list[torch.nn.Parameter], most: float | None) -> None:
    """Update the weights by their gradients, clipped to a norm of `most`.

    Raises:
        OutOfMemoryError: The first update creates the optimizer's moments, which do not fit the
            device.
    """
    try:
        runner = getattr(run.encoder, "runner", None)
        by = runner.update if isinstance(runner, GraphedTransformer) else update
        by(run.optimizer, parameters, most)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        reason = first_line(error)
    else:
        run.schedule.step()
        return
    rule = "must fit the device's memory together with weights, gradients and optimizer state"
    move = (
        "Set encoder.lora_rank or optimizer.name=sgd, or give the trial a larger share of a GPU."
    )
    number = sum(weight.numel() for weight in parameters if weight.requires_grad)
    fault = Fault(
        "a training step", value=f"an update of {number:,} weights", rule=rule, move=move
    )
    raise OutOfMemoryError(f"{fault}\n{reason}")


def count_steps(corpus: Corpus, config: TrialConfig) -> int:
    """How many updates a trial makes.

    Raises:
        DataError: The method cannot learn from batches of these rows.
    """
    if config.data.order not in COUNTED:
        return check_batches(corpus, config) * config.optimizer.epochs
    return sum(check_batches(corpus, config, epoch) for epoch in range(config.optimizer.epochs))


def check_batches(corpus: Corpus, config: TrialConfig, epoch: int = 0) -> int:
    """Check that the method can learn from every batch of an epoch (numbered from 0).

    Returns:
        The number of batches; 0 if the method takes no steps.

    Raises:
        DataError: The method cannot learn from some batch.
    """
    if not config.method.trains_on_rows:
        return 0
    method = method_class(config.method)
    method.check(corpus)
    epoch_batches = _epoch(corpus, config, epoch)
    shortest = min(map(len, epoch_batches))
    if shortest < method.smallest_batch:
        rule = (
            f"method {config.method.name} needs {method.smallest_batch} rows or more in "
            f"every batch, but one batch of {corpus.source} has {shortest}"
        )
        move = "Set data.drop_last=true, or change optimizer.batch_size."
        if config.optimizer.batch_size < method.smallest_batch:
            move = f"Set optimizer.batch_size to {method.smallest_batch} or more."
        elif len(corpus) < method.smallest_batch:
            move = "Use more rows."
        value = str(config.optimizer.batch_size)
        raise DataError(
            Fault(corpus.source, key="optimizer.batch_size", value=value, rule=rule, move=move)
        )
    return len(epoch_batches)


def _epoch_batches(corpus: Corpus, config: TrialConfig) -> Iterator[RowNumbers]:
    """The rows of every batch of a training, epoch after epoch."""
    for epoch in range(config.optimizer.epochs):
        yield from _epoch(corpus, config, epoch)


def rows_left_out(corpus: Corpus, config: TrialConfig) -> int:
    """How many rows belong to no batch of the first epoch."""
    data = config.data
    if not config.method.trains_on_rows or not (data.drop_last or data.mix == "in_turn"):
        return 0
    return sum(corpus.epoch_sizes()) - sum(map(len, _epoch(corpus, config, 0)))


def _epoch(corpus: Corpus, config: TrialConfig, epoch: int) -> list[np.ndarray]:
    drawn, rows = corpus.epoch_rows(stream(config.seed, "positives", epoch))
    generator = stream(config.seed, "order", epoch)
    size, data = config.optimizer.batch_size, config.data
    drop_last, mix = data.drop_last, data.mix
    of_epoch = batches(drawn, size, data.order, generator, drop_last=drop_last, mix=mix)
    return of_epoch if drawn is corpus else [rows[batch] for batch in of_epoch]


def _finite_losses(loss: StepLoss, number: int) -> dict[str, float]:
    losses = {"loss": loss.total.item()}
    losses.update({f"loss.{name}": part.item() for name, part in loss.parts.items()})
    losses.update({f"rate.{name}": rate for name, rate in loss.rates.items()})
    for name, value in losses.items():
        if not math.isfinite(value):
            raise NonFiniteError(f"{name} must be finite, but is {value} at step {number}")
    return losses


def is_shown(number: int, total: int) -> bool:
    """Whether a step is a point of the curves, which have about 200 points each."""
    return number % max(1, total // _CURVE_POINTS) == 0 or number in (1, total)
