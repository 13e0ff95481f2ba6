"""Values that cannot work, which are refused, and values that are rarely meant, which are told."""

from collections.abc import Callable, Iterator

from tune_sentcl.config import TrialConfig, usual_ranges
from tune_sentcl.errors import CheckpointError, ConfigError, Fault
from tune_sentcl.space import Space
from tune_sentcl.trial import InputLoader

_LENGTHS = ("encoder.max_length", "encoder.train_length")
_ANY_ENCODER = 512
"""A length that spaces state for every encoder; one with fewer positions truncates sooner."""


def check_lengths(space: Space, loader: InputLoader, *, sampled: bool) -> None:
    """Refuse inputs that are longer than any that the encoder can read.

    Args:
        space: What is searched.
        loader: Reads the checkpoints' files.
        sampled: Whether values are drawn from the ranges too.

    Raises:
        ConfigError: A length is beyond the encoder's positions, and beyond 512.
    """
    faults: dict[Fault, None] = {}
    for config in (*space.configurations, *(range_ends(space) if sampled else ())):
        name = config.encoder.checkpoint
        try:
            positions = loader.checkpoint(name).positions
        except CheckpointError:  # a trial that needs it says so
            continue
        for key, length in config.dotted().items():
            if key not in _LENGTHS or positions is None or not isinstance(length, int):
                continue
            if length > max(positions, _ANY_ENCODER):
                rule = f"{name} has {positions} positions, so it cannot read longer inputs"
                move = f"Set it to {positions} at most."
                faults[Fault(space.source, key, str(length), rule, move)] = None
    if faults:
        raise ConfigError(list(faults))


def say_unusual(
    space: Space, loader: InputLoader, say: Callable[[str], None], *, sampled: bool
) -> None:
    """Say once which values lie far outside of what people use, with the usual range.

    Args:
        space: What is searched.
        loader: Reads the rows, which a batch may exceed.
        say: Is told.
        sampled: Whether values are drawn from the ranges too.
    """
    unusual: dict[tuple[str, str], dict[str, None]] = {}
    for config in (*space.configurations, *(range_ends(space) if sampled else ())):
        values = config.dotted()
        for key, (low, high) in usual_ranges(values).items():
            if not low <= values[key] <= high:
                usual = (
                    f"{low:g} to {high:g} with {config.method.name} and {config.optimizer.name}"
                )
                unusual.setdefault((key, usual), {})[f"{values[key]:g}"] = None
    for (key, usual), found in unusual.items():
        say(f"{key} = {' and '.join(found)} is unusual; people use {usual}")
    drawn = [item for item in space.ranges if sampled and item.key == "optimizer.batch_size"]
    ends = [int(size) for item in drawn for size in item.ends()]
    large: dict[tuple[int, int], None] = {}
    for config in space.configurations:
        corpus = loader.load(config).corpus
        rows = max(corpus.parts, default=len(corpus))
        if config.method.takes_steps:
            sizes = (config.optimizer.batch_size, *ends)
            large.update({(size, rows): None for size in sizes if size > rows})
    for size, rows in large:
        say(f"optimizer.batch_size = {size} is more than the {rows} rows: a batch holds them all")


def range_ends(space: Space) -> Iterator[TrialConfig]:
    """A configuration at each end of each range, for every method and optimizer."""
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            for value in item.ends():
                yield space.sampled({**branch, item.key: value})
