"""How long trainings are: their rows and steps, before any of them runs."""

import itertools
from collections.abc import Iterator
from contextlib import suppress

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import BadInputError
from tune_sentcl.space import Space
from tune_sentcl.trial import InputLoader

_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "optimizer.batch_size")
"""The knobs that decide how many steps a training makes."""


def whole_training(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows of a whole training, and about how many steps it makes."""
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = list(corpus.epoch_sizes())
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        rounds = min(-(-count // size) for count in rows)
        rows = [min(count, rounds * size) for count in rows]
    epochs = config.optimizer.epochs
    return sum(rows) * epochs, sum(-(-count // size) for count in rows) * epochs


def fewest_steps(space: Space, loader: InputLoader) -> int:
    """The steps of the training of grid and ranges that makes the fewest; 0 if none makes any."""
    found = []
    for config in _variants(space):
        if config.method.takes_steps:
            with suppress(BadInputError):  # inputs that cannot be read do not run
                found.append(whole_training(config, loader)[1])
    return min(found, default=0)


def _variants(space: Space) -> Iterator[TrialConfig]:
    """The grid, and each of its configurations with the range ends of `_LENGTHS`."""
    drawn = [item for item in space.ranges if item.key in _LENGTHS]
    for config in space.configurations:
        yield config
        ends = ([int(e) if item.kind == "int" else e for e in item.ends()] for item in drawn)
        for values in itertools.product(*ends):
            changes = dict(zip((item.key for item in drawn), values, strict=True))
            with suppress(BadInputError):  # nor do invalid values
                yield parse_dotted({**config.dotted(), **changes}, "a range")
