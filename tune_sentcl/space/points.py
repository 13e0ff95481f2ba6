"""The points of a space's grids, and the configurations that they stand for."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tune_sentcl.config import (
    TrialConfig,
    Values,
    fitting,
    flatten,
    parse_dotted,
    shown,
    unknown_key,
)
from tune_sentcl.errors import ConfigError, Fault, SpaceError


@dataclass(frozen=True)
class Point:
    """One grid point before it is checked.

    Attributes:
        values: Dotted; knobs that its method or optimizer lacks are left out,
        required: but for these, which the point itself names.
    """

    values: Values
    required: tuple[str, ...] = ()


def grid_points(blocks: Sequence[Values], fixed: Values, source: str) -> Iterator[Point]:
    """Every point of every block's grid, repetitions included.

    Raises:
        SpaceError: A grid's values are no list.
    """
    for block in blocks:
        grid = dict(flatten(block.get("grid", {})))
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                rule = "must be a list of values, not empty"
                raise SpaceError(Fault(source, key, shown(values), rule, "Write [0.1, 0.3]."))
        own = {**fixed, **dict(flatten(block.get("fixed", {})))}
        for values in itertools.product(*grid.values()):
            yield Point({**own, **dict(zip(grid, values, strict=True))}, tuple(grid))


def expand(points: Iterable[Point], source: str) -> list[TrialConfig]:
    """The points' distinct configurations; every fault of them is listed."""
    configurations: dict[TrialConfig, None] = {}
    faults: dict[Fault, None] = {}
    for point in points:
        with gathered(faults):
            configurations[configure(point.values, source, point.required)] = None
    if faults:
        raise ConfigError(faults)
    return list(configurations)


def override(points: Iterable[Point], overrides: Values) -> list[TrialConfig]:
    """The points' configurations under other values, each of a knob that one of them has."""
    where = "--set"
    changed = expand([Point({**point.values, **overrides}) for point in points], where)
    held = {key for config in changed for key in config.dotted()}
    lost = [unknown_key(where, key, shown(overrides[key])) for key in overrides if key not in held]
    if lost:
        raise ConfigError(lost)
    return changed


def configure(values: Values, source: str, required: Collection[str] = ()) -> TrialConfig:
    """Build a config without the knobs that its method and optimizer lack, unless required."""
    asked = {key: values[key] for key in required}
    return parse_dotted({**fitting(values), **asked}, source)


@contextmanager
def gathered(faults: dict[Fault, None]) -> Iterator[None]:
    """Keep a config's faults, each once, so that those of the next one can be told as well."""
    try:
        yield
    except ConfigError as error:
        faults.update(dict.fromkeys(error.faults))
