"""Where the first rung lies, unless the user says: where every trial has been evaluated once."""

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tune_sentcl.config import TrialConfig, parse_dotted, source_names
from tune_sentcl.errors import BadInputError, ConfigError, Fault
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.rungs import Spacing
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import InputLoader

_FILL = 0.9
"""How full batches are at least on the average, of whole premise groups or of several sources."""


def spacing(space: Space, options: SearchOptions, loader: InputLoader) -> Spacing | None:
    """The rungs that a search's options name; None where nothing is stopped early.

    Without `grace` the first rung lies where the slowest configuration, in rows, of grid and
    ranges has its first evaluation point. One that has none before its end is never stopped, and
    does not count; where none has one, the rung lies beyond them all.

    Raises:
        BadInputError: A configuration's inputs cannot be read.
        ConfigError: The last rung would lie below the first.
    """
    if options.scheduler == "none":
        return None
    grace = options.grace or _first_points(space, loader)
    if options.max_rows is not None and options.max_rows < grace:
        rule = f"must not lie below the first rung, {grace} rows"
        move = "Give more, drop it, or give --grace."
        raise ConfigError(Fault("--max-rows", "", str(options.max_rows), rule, move))
    return Spacing(grace, options.reduction, options.max_rows)


def most_rows(space: Space, loader: InputLoader) -> int:
    """Rows that the longest trial of grid and ranges sees."""
    return max(
        _epoch(config, loader)[0] * config.optimizer.epochs for config in _variants(space, loader)
    )


def _first_points(space: Space, loader: InputLoader) -> int:
    found = (
        _first_point(config, loader)
        for config in _variants(space, loader)
        if config.method.takes_steps and config.evaluation.every
    )
    return max((rows for rows in found if rows is not None), default=most_rows(space, loader) + 1)


def _first_point(config: TrialConfig, loader: InputLoader) -> int | None:
    """Rows at the first evaluation point; None where it has none before its end."""
    uneven = "groups" in config.data.order or len(source_names(config.data.source)) > 1
    size = config.optimizer.batch_size * (_FILL if uneven else 1.0)
    epoch, steps = _epoch(config, loader)
    epochs, rest = divmod(config.evaluation.every, steps)
    rows = epochs * epoch + min(int(rest * size), epoch)
    return rows if rows < epoch * config.optimizer.epochs else None


def _epoch(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows that an epoch deals out, and about how many batches that are."""
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = [len(part) for part in corpus.by_source()]
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        turns = min(-(-count // size) for count in rows)
        rows = [min(count, turns * size) for count in rows]
    return sum(rows), sum(-(-count // size) for count in rows)


_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "evaluation.every")
"""The knobs, beside the batch size, that say how many rows a trial sees before its first point."""


def _variants(space: Space, loader: InputLoader) -> Iterator[TrialConfig]:
    """The grid, and each of its configurations with what may be drawn of those knobs instead."""
    drawn = [item for item in space.ranges if item.key in _LENGTHS]
    for config in space.configurations:
        yield from _batched(config, space, loader)
        for values in itertools.product(*(_ends(item) for item in drawn)):
            changes = dict(zip((item.key for item in drawn), values, strict=True))
            # What cannot be, or cannot be read, is never drawn to its end.
            with suppress(BadInputError):
                variant = parse_dotted({**config.dotted(), **changes}, "a range")
                yield from _batched(variant, space, loader)


def _batched(config: TrialConfig, space: Space, loader: InputLoader) -> Iterator[TrialConfig]:
    """A configuration, and again in each batch size that may be drawn.

    A range stands for its ends, the upper one lowered to the largest that still has a point.
    """
    rows = len(loader.load(config).corpus) * config.optimizer.epochs
    yield config
    for item in space.ranges:
        if item.key == "optimizer.batch_size":
            for size in _ends(item, rows // (config.evaluation.every + 1)):
                yield parse_dotted({**config.dotted(), item.key: size}, "a range")


def _ends(item: Range, most: float = math.inf) -> tuple[Any, ...]:
    if item.kind == "choice":
        return tuple(item.choices)
    return int(item.low), int(max(item.low, min(item.high, most)))
