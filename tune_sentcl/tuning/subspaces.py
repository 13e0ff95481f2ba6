"""What is left to propose: the points of a space's ranges that have not been visited."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import TrialState

from tune_sentcl.space import Range, Space
from tune_sentcl.tuning.sampling import suggest

Params = dict[str, Any]
"""One value for each range that the drawn unions have, by its dotted key."""
SubspaceKey = tuple[tuple[str, Any], ...]
"""The drawn unions, each with the member drawn: (("method.name", "scl"),)."""

# A room with more points is never listed to its end: it is drawn from as if it were continuous.
_MAX_LISTED = 2_000_000
_MAX_TRIES = 300


class Subspaces:
    """The ranges of a space, split by what their unions may be drawn as.

    All points of a room have the same knobs. Where every range of a room is a list or whole
    numbers, the room is finite and can be walked through to its last point.

    Laws: a point of a finite room is visited once in the life of the object; a room without
    points stays so.

    Attributes:
        points: How many all rooms have together; infinity where a range is continuous.
    """

    def __init__(self, space: Space, seed: int) -> None:
        """Nothing is listed yet: a room's order is drawn, by `seed`, as it is walked through."""
        self._random = random.Random(seed)
        branches = space.branches() if space.ranges else []
        self._ranges = {tuple(b.items()): space.active_ranges(b) for b in branches}
        self._open = {key: self._points(key) for key in self._ranges}
        self.points = sum(map(self.size, self._ranges))

    @property
    def exhausted(self) -> bool:
        """Whether every room is known to be empty."""
        return not self._open

    def open_keys(self) -> tuple[SubspaceKey, ...]:
        """The rooms that may still have points."""
        return tuple(self._open)

    def random_open_key(self) -> SubspaceKey | None:
        """One of them at random, all alike: a room that looks poor so far may hold the best."""
        return self._random.choice(self.open_keys()) if self._open else None

    def size(self, key: SubspaceKey) -> float:
        """How many points a room has in all; infinity where a range is continuous."""
        return math.prod(_size(item) for item in self._free_ranges(key))

    def finite(self, key: SubspaceKey) -> bool:
        """Whether a room is walked through to its last point."""
        return self.size(key) <= _MAX_LISTED

    def subspace_of(self, params: Params) -> SubspaceKey:
        """The room in which a place lies."""
        return next(key for key in self._ranges if dict(key).items() <= params.items())

    def draw(self, key: SubspaceKey, is_taken: Callable[[Params], bool]) -> Params | None:
        """The next point of a room, in random order, that is not taken.

        Args:
            key: The room.
            is_taken: Whether a place stands for what is held already. Two places may stand for the
                same, so only the caller can know.

        Returns:
            None where the room is empty, now and for good. A room that is not finite counts as
            empty when some hundred points in a row are taken.
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
    """The point of this index, when the first range's values change fastest."""
    params = {}
    for item in ranges:
        index, digit = divmod(index, len(_values(item)))
        params[item.key] = _values(item)[digit]
    return params


def _shuffled(count: int, generator: random.Random) -> Iterator[int]:
    """0 to count - 1 in random order; remembers what has been drawn, not what has not."""
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
    number = min(max(number, item.low), item.high)  # exp and log are not quite inverse
    return number if item.kind == "float" else round(number)


# Asking a few times more finds better points than drawing blindly as soon as one is held.
_MAX_ASKS = 4


def propose(
    study: optuna.Study, space: Space, subspaces: Subspaces, is_new: Callable[[Params], bool]
) -> tuple[optuna.Trial, Params] | None:
    """Ask the sampler for a place that is new; no ask of it is in vain.

    A place that is held already is told as failed, which no sampler learns from: telling its value
    once more would anchor the sampler to it. After a few of them the room gives one of its points
    that are left. From a room without points the search moves to another one, whose other knobs
    the sampler chooses itself: else one that likes the empty room best would only draw at random.

    Args:
        study: Where the sampler is asked; the trial that is returned runs in it.
        space: What the places are places of.
        subspaces: What is left.
        is_new: Whether a place stands for a configuration that is not held.

    Returns:
        The sampler's trial and its place; None where nothing is left to propose.
    """
    open_keys = subspaces.open_keys()
    fixed_params: Mapping[str, Any] = dict(open_keys[0]) if len(open_keys) == 1 else {}
    repeats = 0
    while not subspaces.exhausted:
        trial, params = ask(study, space, fixed_params)
        if is_new(params):
            return trial, params
        study.tell(trial, state=TrialState.FAIL)
        repeats += 1
        key = subspaces.subspace_of(params)
        if key in subspaces.open_keys():
            if repeats < _MAX_ASKS:
                continue
            point = subspaces.draw(key, lambda params: not is_new(params))
            if point is not None:
                return ask(study, space, point)
        fixed_params, repeats = dict(subspaces.random_open_key() or ()), 0
    return None


def ask(
    study: optuna.Study, space: Space, fixed_params: Mapping[str, Any]
) -> tuple[optuna.Trial, Params]:
    """Ask for a trial of which some knobs are given; Optuna records it as any other."""
    if fixed_params:
        study.enqueue_trial(dict(fixed_params))
    trial = study.ask()
    return trial, suggest(trial, space)
