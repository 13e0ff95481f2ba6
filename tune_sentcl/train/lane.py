"""A training that makes its updates as a lane of a stack."""

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Literal

import torch

from tune_sentcl.config import AdamwConfig, Fingerprints, TrialConfig
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.methods import AnyMethod, method_class
from tune_sentcl.methods.stackable import Stackable
from tune_sentcl.seeding import stream_seed
from tune_sentcl.train.deck import Lane
from tune_sentcl.train.loop import Step, begin, count_steps, dealt, is_shown, require_finite
from tune_sentcl.train.optimizer import learning_rate_factor
from tune_sentcl.train.stack import Stack
from tune_sentcl.train.stacked_rules import added_epsilon
from tune_sentcl.train.state import TrainingState

LANES = 32
"""As many as `auto` ever takes."""

_NARROW = 256  # as benchmarks/lanes_speed.py measures


def alike(config: TrialConfig, prints: Fingerprints) -> tuple[object, ...] | None:
    """What trials have to have in common to train as lanes of one stack; None: it has to be alone.

    They read the same rows by the same frozen encoder, in batches of one size, and move by the
    same rule. In what is a number to a step they may differ.

    Args:
        config: A trial.
        prints: Of what it reads.
    """
    method = method_class(config.method)
    if not issubclass(method, Stackable):
        return None
    free = {*method.lane_knobs, *method.lane_widths}
    knobs = tuple((name, value) for name, value in config.method if name not in free)
    encoder, optimizer = config.encoder, config.optimizer
    return (
        (prints.data, prints.checkpoint, encoder.pooling, encoder.max_length),
        (encoder.query_prefix, encoder.text_prefix),
        (optimizer.name, optimizer.batch_size),
        knobs,
        tuple(_room(getattr(config.method, name)) for name in method.lane_widths),
    )


def lanes_at_most(config: TrialConfig, asked: int | Literal["auto"], *, on_gpu: bool) -> int:
    """How many trials like this one train together.

    Args:
        config: One of them.
        asked: How many are asked for; `auto`: as many as train in less time than one after the
            other. On a GPU a step of one waits for its launches. On a CPU lanes save what a step
            costs beside its products, which is little where the products are large.
        on_gpu: Where they train.
    """
    widest = width_of(config)
    if widest is None:
        return 1
    if asked != "auto":
        return asked
    return LANES if on_gpu or widest <= _NARROW else 1


def width_of(config: TrialConfig) -> int | None:
    """The widest layer behind a frozen encoder; None where a method has no lanes."""
    method = method_class(config.method)
    if not issubclass(method, Stackable):
        return None
    widths: list[int] = [getattr(config.method, name) for name in method.lane_widths]
    return max(widths)


def _room(width: int) -> int:
    """The power of two that a layer's width is padded to at most."""
    return 1 << (width - 1).bit_length()


def enter(
    stack: Stack,
    method: AnyMethod,
    corpus: Corpus,
    config: TrialConfig,
    resumed: TrainingState | None = None,
) -> Lane:
    """Begin a training in a stack, in place; `steps` does the rest.

    A lane's states are those of `train`, so that either goes on from what the other has left.

    Args:
        stack: Whose other lanes are `alike`.
        method: Its encoder and its heads are trained; a `Stackable`.
        corpus: The stack's rows.
        config: The trial.
        resumed: As for `train`.

    Raises:
        DataError: The rows cannot be dealt into batches that the method can learn from.
        KeyError, RuntimeError, ValueError: `resumed` is of another training.
    """
    method.fit(corpus)
    total = count_steps(corpus, config)
    moving = begin(method, config, total, resumed)
    number, samples = (0, 0) if resumed is None else (resumed.number, resumed.samples)
    rows = islice(dealt(corpus, config), number, None)
    lane = Lane(method, config, moving, total, rows, number, samples)
    stack.join(lane)
    return lane


def steps(stack: Stack, lane: Lane) -> Generator[Step | None, None, None]:
    """What `train` yields, but for steps at which there is nothing to do beside the update.

    Yields None where it waits for whoever has the stack to make its lane's next update, or
    several, none beyond `Lane.until`.

    Args:
        stack: Which the lane has entered; it leaves with weights of its own, however this ends.
        lane: From `enter`.

    Raises:
        NonFiniteError: The loss is not a finite number.
    """
    try:
        while lane.number < lane.total:
            lane.until = _next_stop(lane.config, lane.number, lane.total)
            yield None
            losses = lane.losses() if is_shown(lane.number, lane.total) else {}
            require_finite(losses, lane.number)
            done, state = lane.samples / stack.rows, partial(_state, lane)
            yield Step(lane.number, lane.total, done, lane.samples, losses, 1, state)
    finally:
        stack.leave(lane)


def _next_stop(config: TrialConfig, number: int, total: int) -> int:
    """The next step at which there is something to do beside the update."""
    every = config.evaluation.every
    for step in range(number + 1, total):
        if is_shown(step, total) or (every and step % every == 0):
            return step
    return total


def _state(lane: Lane) -> TrainingState:
    """What `train` would be at the lane's step."""
    if lane.moments:
        _put_back(lane)
    found = lane.moving.state(lane.number, lane.samples, 1)
    # Torch's global state is of all lanes; that of this trial alone is as new, for none is used.
    unused = torch.Generator().manual_seed(stream_seed(lane.config.seed, "dropout"))
    return replace(found, tensors={**found.tensors, "random.cpu": unused.get_state()})


def _put_back(lane: Lane) -> None:
    """Make the lane's own optimizer and schedule what they would be, had they moved it."""
    moving, config, number = lane.moving, lane.config.optimizer, lane.number
    factor = learning_rate_factor(config, number, lane.total)
    for group in moving.optimizer.param_groups:
        group["lr"] = config.lr * factor
        if "steps_taken" in group:
            group["steps_taken"] = number
        if isinstance(config, AdamwConfig):
            group["eps"] = added_epsilon(config, number)
    rates = [group["lr"] for group in moving.optimizer.param_groups]
    there = moving.schedule.state_dict()
    moving.schedule.load_state_dict(
        there | {"last_epoch": number, "_step_count": number + 1, "_last_lr": rates}
    )
    for name, weight in lane.weights.items():
        moments: dict[str, object] = dict(lane.moments[name])
        if isinstance(config, AdamwConfig):
            moments["step"] = torch.tensor(float(number))
        moving.optimizer.state[weight] = moments
