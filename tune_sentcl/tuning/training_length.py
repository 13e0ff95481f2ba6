"""How long trainings are: their rows and steps, before any of them runs."""

import itertools
from collections.abc import Iterator
from contextlib import suppress

from tune_sentcl.config import TrialConfig
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
    for config in trainings(space):
        with suppress(BadInputError):  # inputs that cannot be read do not run
            found.append(whole_training(config, loader)[1])
    return min(found, default=0)


def trainings(space: Space) -> Iterator[TrialConfig]:
    """The grid's trainings, and one for each method of the ranges and each end of `_LENGTHS`."""
    return (config for config in _variants(space) if config.method.takes_steps)


def _variants(space: Space) -> Iterator[TrialConfig]:
    yield from space.configurations
    for branch in space.branches() if space.ranges else ():
        drawn = [item for item in space.active_ranges(branch) if item.key not in branch]
        ends = [[int(end) if item.kind == "int" else end for end in item.ends()] for item in drawn]
        used = (e if i.key in _LENGTHS else e[:1] for i, e in zip(drawn, ends, strict=True))
        for values in itertools.product(*used):
            found = dict(zip((item.key for item in drawn), values, strict=True))
            with suppress(BadInputError):  # nor do invalid values
                yield space.sampled({**branch, **found})
