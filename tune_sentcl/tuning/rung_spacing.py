"""Where the rungs of a search lie, in training rows."""

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tune_sentcl.config import TrialConfig, parse_dotted, source_names
from tune_sentcl.errors import BadInputError, ConfigError, Fault
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.search_options import SearchOptions

FIRST_REDUCTION = 2
"""At the first rung the best 1 in so many go on, to a rung at so many times its rows."""


@dataclass(frozen=True)
class RungSpacing:
    """The rungs: at `grace` and 2 * `grace` rows, and from there `reduction` times apart.

    The first score of a training may say nothing of its end. So the better half goes on at the
    first rung and is compared again soon. The second rung then lets through so few that both
    reduce like two rungs.

    Attributes:
        grace: Rows of the first rung; no trial is stopped before it.
        reduction: From the third rung on the best 1 in `reduction` go on.
        last: No rung lies above this number of rows; None: no bound.
        is_known: Whether the first rung is `grace`. If not, it is no lower, and curves of whole
            trainings will tell it (`tuning.first_rung`).
    """

    grace: int
    reduction: int = 4
    last: int | None = None
    is_known: bool = True

    def up_to(self, rows: int) -> list[int]:
        """The rungs that a trial of this many rows reaches."""
        top = rows if self.last is None else min(rows, self.last)
        found, rung = [], max(1, self.grace)
        while rung <= top:
            found.append(rung)
            rung *= FIRST_REDUCTION if len(found) == 1 else self.reduction
        return found

    def reduction_at(self, rung: int) -> int:
        """Of the trials at a rung the best 1 in so many go on."""
        match rung // max(1, self.grace):
            case 1:
                return FIRST_REDUCTION
            case 2:
                return self.reduction**2 // FIRST_REDUCTION
            case _:
                return self.reduction


_FILL = 0.9
"""The least mean fill of batches that hold whole premise groups or come from several sources."""


def rung_spacing(space: Space, options: SearchOptions, loader: InputLoader) -> RungSpacing | None:
    """The rungs that a search's options ask for; None without early stopping.

    If the options give no first rung, it is not known, and no lower than the first evaluation
    point of the slowest configuration, in rows, of grid and ranges. A configuration without a
    point before its end cannot be stopped and does not count. If no configuration has such a
    point, the rung lies above them all.
    """
    if options.scheduler != "asha" or not options.samples:
        return None
    return spaced(options, 0 if options.grace else _first_points(space, loader))


def spaced(options: SearchOptions, earliest: int) -> RungSpacing:
    """The rungs of the options; without a `grace` the first lies at `earliest` rows or later."""
    grace = options.grace or earliest
    if options.max_rows is not None and options.max_rows < grace:
        rule = f"must not lie below the first rung, {grace} rows"
        move = "Give more, drop it, or give grace."
        raise ConfigError(Fault("max_rows", "", str(options.max_rows), rule, move))
    return RungSpacing(grace, options.reduction, options.max_rows, options.grace is not None)


def most_rows(space: Space, loader: InputLoader) -> int:
    """Rows that the longest trial of grid and ranges sees."""
    return max(whole_training(config, loader)[0] for config in _variants(space, loader))


def whole_training(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows of a whole training, and about how many steps it makes."""
    rows, steps = _epoch(config, loader)
    return rows * config.optimizer.epochs, steps * config.optimizer.epochs


def _first_points(space: Space, loader: InputLoader) -> int:
    found = (
        _first_point(config, loader)
        for config in _variants(space, loader)
        if config.method.takes_steps and config.evaluation.every
    )
    return max((rows for rows in found if rows is not None), default=most_rows(space, loader) + 1)


def _first_point(config: TrialConfig, loader: InputLoader) -> int | None:
    """Rows at the first evaluation point; None where it has none before its end."""
    has_uneven_batches = "groups" in config.data.order or len(source_names(config.data.source)) > 1
    size = config.optimizer.batch_size * (_FILL if has_uneven_batches else 1.0)
    epoch, steps = _epoch(config, loader)
    epochs, rest = divmod(config.evaluation.every, steps)
    rows = epochs * epoch + min(int(rest * size), epoch)
    return rows if rows < epoch * config.optimizer.epochs else None


def _epoch(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows of an epoch, and about how many batches they make."""
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = [len(part) for part in corpus.by_source()]
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        rounds = min(-(-count // size) for count in rows)
        rows = [min(count, rounds * size) for count in rows]
    return sum(rows), sum(-(-count // size) for count in rows)


_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "evaluation.every")
"""Knobs that, with the batch size, decide how many rows precede a trial's first point."""


def _variants(space: Space, loader: InputLoader) -> Iterator[TrialConfig]:
    """The grid, and each of its configurations with the range ends of `_LENGTHS`."""
    drawn = [item for item in space.ranges if item.key in _LENGTHS]
    for config in space.configurations:
        yield from _with_batch_sizes(config, space, loader)
        for values in itertools.product(*(_range_ends(item) for item in drawn)):
            changes = dict(zip((item.key for item in drawn), values, strict=True))
            with suppress(BadInputError):  # invalid values or unreadable inputs do not run
                variant = parse_dotted({**config.dotted(), **changes}, "a range")
                yield from _with_batch_sizes(variant, space, loader)


def _with_batch_sizes(
    config: TrialConfig, space: Space, loader: InputLoader
) -> Iterator[TrialConfig]:
    """A configuration, and a copy for each end of the range of batch sizes.

    The upper end is lowered to the largest batch size that has an evaluation point before the end.
    """
    rows = len(loader.load(config).corpus) * config.optimizer.epochs
    yield config
    for item in space.ranges:
        if item.key == "optimizer.batch_size":
            for size in _range_ends(item, rows // (config.evaluation.every + 1)):
                yield parse_dotted({**config.dotted(), item.key: size}, "a range")


def _range_ends(item: Range, most: float = math.inf) -> tuple[Any, ...]:
    if item.kind == "choice":
        return tuple(item.choices)
    return int(item.low), int(max(item.low, min(item.high, most)))
