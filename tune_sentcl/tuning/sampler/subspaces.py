"""The subspaces of a space's ranges, and the points in them that were not proposed yet."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tune_sentcl.space import Range, Space

Params = dict[str, Any]
"""One value for each active range, by dotted key."""
SubspaceKey = tuple[tuple[str, Any], ...]
"""The choice of each drawn union: (("method.name", "scl"),)."""

# A subspace with more points is sampled as if it were continuous.
_MAX_LISTED = 2_000_000
_MAX_TRIES = 300


class Subspaces:
    """The ranges of a space, split by the choices of its unions (method, optimizer).

    All points of a subspace have the same knobs. A subspace is finite if each of its ranges is a
    list or whole numbers; the search can then visit every point of it.

    Laws: each point of a finite subspace is drawn at most once in the life of the object. An
    exhausted subspace stays exhausted.

    Attributes:
        points: Number of points of all subspaces; infinity if a range is continuous.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._random = random.Random(seed)
        branches = space.branches() if space.ranges else []
        self._ranges = {tuple(b.items()): space.active_ranges(b) for b in branches}
        self._open = {key: self._points(key) for key in self._ranges}
        self.points = sum(map(self.size, self._ranges))

    @property
    def exhausted(self) -> bool:
        """Whether no subspace has an open point."""
        return not self._open

    def open_keys(self) -> tuple[SubspaceKey, ...]:
        """The subspaces that are not known to be exhausted."""
        return tuple(self._open)

    def random_open_key(self) -> SubspaceKey | None:
        """A uniform choice among the open subspaces; None if there are none.

        The choice ignores past scores: a subspace with poor scores so far may hold the best point.
        """
        return self._random.choice(self.open_keys()) if self._open else None

    def size(self, key: SubspaceKey) -> float:
        """Number of points of a subspace; infinity if a range is continuous."""
        return math.prod(_size(item) for item in self._free_ranges(key))

    def finite(self, key: SubspaceKey) -> bool:
        """Whether every point of a subspace can be visited (at most `_MAX_LISTED` points)."""
        return self.size(key) <= _MAX_LISTED

    def subspace_of(self, params: Params) -> SubspaceKey:
        """The subspace of a point."""
        return next(key for key in self._ranges if dict(key).items() <= params.items())

    def draw(self, key: SubspaceKey, is_taken: Callable[[Params], bool]) -> Params | None:
        """Draw the next point that is not taken, at random; None if the subspace is exhausted.

        Two points may stand for one configuration, so the caller decides which ones are taken. A
        subspace that is not finite counts as exhausted after `_MAX_TRIES` taken points in a row.
        """
        points = self._open.get(key, iter(()))
        for params in points if self.finite(key) else itertools.islice(points, _MAX_TRIES):
            if not is_taken(params):
                return params
        self._open.pop(key, None)
        return None

    def _free_ranges(self, key: SubspaceKey) -> list[Range]:
        return [item for item in self._ranges[key] if item.key not in dict(key)]

    def _points(self, key: SubspaceKey) -> Iterator[Params]:
        free = self._free_ranges(key)
        if self.finite(key):
            order = _shuffled(int(self.size(key)), self._random)
            points = (_point_at(index, free) for index in order)
        else:
            points = (_random_params(free, self._random) for _ in itertools.count())
        return ({**dict(key), **point} for point in points)


def _values(item: Range) -> Sequence[Any]:
    return item.choices if item.kind == "choice" else range(int(item.low), int(item.high) + 1)


def _size(item: Range) -> float:
    return math.inf if item.kind == "float" else len(_values(item))


def _point_at(index: int, ranges: Sequence[Range]) -> Params:
    """The point with this index; the first range's values change fastest."""
    params = {}
    for item in ranges:
        index, digit = divmod(index, len(_values(item)))
        params[item.key] = _values(item)[digit]
    return params


def _shuffled(count: int, generator: random.Random) -> Iterator[int]:
    """0 to count - 1 in random order; memory grows with the numbers drawn, not with `count`."""
    moved: dict[int, int] = {}
    for first in range(count):
        drawn = generator.randrange(first, count)
        here = moved.pop(first, first)
        if drawn == first:
            yield here
        else:
            yield moved.get(drawn, drawn)
            moved[drawn] = here


def _random_params(ranges: Sequence[Range], generator: random.Random) -> Params:
    return {item.key: _random_value(item, generator) for item in ranges}


def _random_value(item: Range, generator: random.Random) -> Any:
    if item.kind == "choice":
        return generator.choice(item.choices)
    if item.log:
        number = math.exp(generator.uniform(math.log(item.low), math.log(item.high)))
    else:
        number = generator.uniform(item.low, item.high)
    number = min(max(number, item.low), item.high)  # exp(log(x)) may differ from x by rounding
    return number if item.kind == "float" else round(number)
