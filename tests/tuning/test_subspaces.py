"""Rooms against lists of all their points."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_spaces import choice, frozen, space_of

from tune_sentcl.space import Range
from tune_sentcl.tuning.sampler.subspaces import Params, Subspaces

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


def walked(subspaces: Subspaces) -> list[Params]:
    places = []
    for key in subspaces.open_keys():
        while (params := subspaces.draw(key, lambda params: False)) is not None:
            places.append(params)
    return places


@given(small_ranges(), st.integers(0, 5))
def test_a_finite_space_is_walked_through_point_by_point(
    ranges: tuple[Range, ...], seed: int
) -> None:
    subspaces = Subspaces(space_of(*ranges), seed)
    truth = all_points(ranges)
    assert sum(subspaces.size(key) for key in subspaces.open_keys()) == len(truth)
    visited = walked(subspaces)
    assert sorted(map(frozen, visited)) == sorted(map(frozen, truth))
    assert subspaces.exhausted
    assert subspaces.random_open_key() is None


@given(small_ranges(), st.randoms(use_true_random=False))
def test_what_is_taken_is_passed_over_and_never_comes_back(
    ranges: tuple[Range, ...], generator: Any
) -> None:
    subspaces = Subspaces(space_of(*ranges), 0)
    truth = {frozen(p) for p in all_points(ranges)}
    taken = {point for point in truth if generator.random() < 0.5}
    visited: list[Any] = []
    while (key := subspaces.random_open_key()) is not None:
        params = subspaces.draw(key, lambda params: frozen(params) in taken)
        if params is not None:
            assert subspaces.subspace_of(params) == key
            visited.append(frozen(params))
    assert sorted(visited) == sorted(truth - taken)


def test_a_point_that_was_visited_stays_visited_when_nobody_took_it() -> None:
    subspaces = Subspaces(space_of(choice("method.lambda", 0.1, 0.2)), 0)
    (key,) = subspaces.open_keys()
    first = subspaces.draw(key, lambda params: False)
    second = subspaces.draw(key, lambda params: False)
    assert first != second
    assert subspaces.draw(key, lambda params: False) is None


def test_the_seed_fixes_the_order_and_every_order_occurs() -> None:
    space = space_of(choice("method.lambda", 1, 2, 3, 4))
    orders = [
        tuple(p["method.lambda"] for p in walked(Subspaces(space, seed))) for seed in range(600)
    ]
    assert orders[:50] == [
        tuple(p["method.lambda"] for p in walked(Subspaces(space, seed))) for seed in range(50)
    ]
    counts = [orders.count(order) for order in itertools.permutations((1, 2, 3, 4))]
    assert min(counts) > 5, "24 orders, each expected 25 times"
    assert max(counts) < 55


def test_a_room_of_a_thousand_million_points_is_not_listed() -> None:
    names = {"method.name": "conisi", "optimizer.name": "sgd"}
    space = space_of(*(Range(key, "int", 0, 999) for key in sorted(OWNERS)), **names)
    subspaces = Subspaces(space, 0)
    (key,) = subspaces.open_keys()
    assert subspaces.size(key) == 1000**4
    assert not subspaces.finite(key)
    found = [subspaces.draw(key, lambda params: False) for _ in range(50)]
    assert len({frozen(params) for params in found if params}) == 50


@pytest.mark.parametrize("kind", ["float", "int"])
@pytest.mark.parametrize("log", [True, False])
def test_points_of_an_endless_room_lie_in_its_ranges(kind: Any, log: bool) -> None:
    wide = Range("method.lambda", kind, 1, 10**7, log=log)
    subspaces = Subspaces(space_of(wide), 3)
    (key,) = subspaces.open_keys()
    places = [subspaces.draw(key, lambda params: False) for _ in range(400)]
    values = [params["method.lambda"] for params in places if params]
    assert all(isinstance(value, int if kind == "int" else float) for value in values)
    assert all(wide.holds(value) for value in values)
    middle = math.sqrt(10**7) if log else 10**7 / 2
    assert 140 < sum(value < middle for value in values) < 260


def test_an_endless_room_in_which_all_is_taken_counts_as_empty() -> None:
    subspaces = Subspaces(space_of(Range("method.lambda", "float", 0, 1)), 0)
    (key,) = subspaces.open_keys()
    asked: list[Params] = []

    def taken(params: Params) -> bool:
        asked.append(params)
        return True

    assert subspaces.draw(key, taken) is None
    assert 100 <= len(asked) <= 1000
    assert subspaces.exhausted


def test_a_space_without_ranges_has_no_room() -> None:
    assert Subspaces(space_of(), 0).exhausted
