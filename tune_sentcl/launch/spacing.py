"""Where the first rung lies, unless the user says: where every trial has been evaluated once."""

from collections.abc import Iterator

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.rungs import Spacing
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import InputLoader

_GROUPS_FILL = 0.9  # premise groups stay whole, so that batches of them are seldom full


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
    """Rows that the longest trial of the grid sees."""
    return max(_all_rows(config, loader) for config in space.configurations)


def _first_points(space: Space, loader: InputLoader) -> int:
    found = [
        rows
        for config in space.configurations
        if config.method.takes_steps
        for rows in _points(config, space, loader)
        if rows < _all_rows(config, loader)
    ]
    return max(found, default=most_rows(space, loader) + 1)


def _points(config: TrialConfig, space: Space, loader: InputLoader) -> Iterator[int]:
    """Rows at the first evaluation point, for each batch size and spacing that may be drawn."""
    rows = len(loader.load(config).corpus)
    fill = _GROUPS_FILL if "groups" in config.data.order else 1.0
    for every in _values(space, "evaluation.every", config.evaluation.every):
        # Of a range of sizes the largest that has a point before its end.
        largest = rows * config.optimizer.epochs // (every + 1)
        for size in _values(space, "optimizer.batch_size", config.optimizer.batch_size, largest):
            whole = rows - rows % size if config.data.drop_last and rows > size else rows
            epochs, rest = divmod(every, -(-whole // size))
            yield epochs * whole + min(int(rest * size * fill), whole)


def _values(space: Space, key: str, value: int, most: int = 10**12) -> set[int]:
    """What a knob may be: the grid's value, and what may be drawn in its stead."""
    found = {value}
    for item in space.ranges:
        if item.key == key:
            found.update(map(int, _ends(item, most)))
    return found


def _ends(item: Range, most: int) -> tuple[float, ...]:
    if item.kind == "choice":
        return tuple(value for value in item.choices if isinstance(value, int))
    return item.low, max(item.low, min(item.high, most))


def _all_rows(config: TrialConfig, loader: InputLoader) -> int:
    return len(loader.load(config).corpus) * config.optimizer.epochs
