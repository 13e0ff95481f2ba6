"""What the tests of the sampling side share: ranges without files, and searches without trials."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.space import Params, Range, Space
from tune_sentcl.tuning import question, stages
from tune_sentcl.tuning.options import SamplerName
from tune_sentcl.tuning.queue import Queue
from tune_sentcl.tuning.sampler import Sampler

Quality = Callable[[Mapping[str, Any]], float]


def space_of(*ranges: Range, **base: Any) -> Space:
    """A space that is its ranges alone; its values need not make legal trials."""
    base = {"method.name": "scl", "optimizer.name": "adamw", **base}
    return Space("planted", "", (), "", (), base, ranges, (0,), "", "planted")


def choice(key: str, *values: Any) -> Range:
    return Range(key, "choice", choices=values)


def frozen(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def sampler_trials(sampler: Sampler | Queue, *states: TrialState) -> list[FrozenTrial]:
    """What TPE was told, in the order in which it was; or its trials with other states."""
    found = sampler._sampler if isinstance(sampler, Queue) else sampler
    assert found._study is not None
    return found._study.get_trials(states=states or (TrialState.COMPLETE,))


def let_toys_have_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of two steps too."""
    monkeypatch.setattr(stages, "LEAST_STEPS", 0)
    monkeypatch.setattr(stages, "LEAST_HALF", 3)
    monkeypatch.setattr(question, "texts_at_points", lambda *_: set())


# Which knobs go with which members, written down a second time.
OWNERS = {
    "method.lambda": {"scl", "conisi"},
    "method.strategy": {"conisi"},
    "optimizer.momentum": {"sgd", "lars"},
    "optimizer.epochs": {"sbert", "scl", "conisi"},
}
UNIONS = {"method.name": ("sbert", "scl", "conisi"), "optimizer.name": ("adamw", "sgd", "lars")}


@st.composite
def small_ranges(draw: st.DrawFn) -> tuple[Range, ...]:
    """Ranges of lists and whole numbers, with a few hundred points at most."""
    ranges = [
        choice(key, *draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
        for key, names in UNIONS.items()
        if draw(st.booleans())
    ]
    for key in sorted(OWNERS):
        size = draw(st.integers(0, 4))
        if size and draw(st.booleans()):
            ranges.append(choice(key, *range(size)))
        elif size > 1:
            ranges.append(Range(key, "int", 1, size, log=draw(st.booleans())))
    return tuple(ranges)


def all_points(ranges: Sequence[Range]) -> list[Params]:
    """Every point, by going through all values of all ranges and dropping what does not act."""
    values = [
        item.choices if item.kind == "choice" else tuple(range(int(item.low), int(item.high) + 1))
        for item in ranges
    ]
    points: dict[Any, Params] = {}
    for combination in itertools.product(*values) if ranges else ():
        params = dict(zip([item.key for item in ranges], combination, strict=True))
        names = {params.get("method.name", "scl"), params.get("optimizer.name", "adamw")}
        point = {k: v for k, v in params.items() if k not in OWNERS or OWNERS[k] & names}
        points[frozen(point)] = point
    return list(points.values())


class Planted:
    """A search whose results are planted: places are proposed, and told at once."""

    def __init__(
        self, space: Space, sampler: SamplerName, quality: Quality, *, seed: int = 0
    ) -> None:
        self.space, self.quality = space, quality
        self.sampler = Sampler(sampler, space, seed, 6)
        self.held: set[Any] = set()
        self.known_as: Callable[[Params], Any] = frozen

    def next(self) -> Params | None:
        params = self.sampler.propose(lambda p: self.known_as(p) not in self.held)
        if params is None:
            return None
        assert self.known_as(params) not in self.held, "proposed twice"
        self.held.add(self.known_as(params))
        self.sampler.begin(str(frozen(params)))
        self.sampler.tell(str(frozen(params)), params, self.quality(params))
        return params

    def rest(self, most: int) -> list[Params]:
        """All that is proposed until nothing is left; a bound of what must not be reached."""
        places: list[Params] = []
        while (params := self.next()) is not None:
            places.append(params)
            assert len(places) <= most
        return places
