"""Which configuration is proposed next: none twice, none left out, and nearer the best."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState
from planted_spaces import (
    OWNERS,
    Planted,
    Quality,
    all_points,
    choice,
    frozen,
    sampler_trials,
    small_ranges,
    space_of,
)

from tune_sentcl.space import Params, Range, Space
from tune_sentcl.tuning.options import SamplerName
from tune_sentcl.tuning.sampler import Sampler, distributions

FIVE = (0.1, 0.3, 0.5, 0.7, 0.9)


def nearness(best: float) -> Quality:
    def quality(params: Mapping[str, Any]) -> float:
        return -abs(float(params.get("method.lambda", 0.0)) - best)

    return quality


@given(small_ranges(), st.integers(0, 3), st.integers(0, 4))
def test_every_point_that_is_not_held_is_proposed_once_whatever_the_space(
    ranges: tuple[Range, ...], seed: int, step: int
) -> None:
    truth = sorted(frozen(params) for params in all_points(ranges))
    sampler: SamplerName = "tpe" if len(truth) < 50 else "random"
    search = Planted(space_of(*ranges), sampler, nearness(1), seed=seed)
    search.held = set(truth[::step]) if step else set()
    left = sorted(set(truth) - search.held)
    proposed = search.rest(most=len(left))
    assert sorted(map(frozen, proposed)) == left
    assert search.next() is None
    if sampler == "tpe" and ranges:
        assert [trial.params for trial in sampler_trials(search.sampler)] == proposed
        states = {trial.state for trial in sampler_trials(search.sampler, *TrialState)}
        assert states <= {TrialState.COMPLETE, TrialState.FAIL}, "a repetition is told as failed"


@pytest.mark.parametrize("sampler", ["tpe", "random"])
@pytest.mark.parametrize(
    "other", [Range("optimizer.epochs", "int", 1, 3), Range("optimizer.lr", "float", 0.1, 1)]
)
def test_places_that_stand_for_one_configuration_are_proposed_once(
    sampler: SamplerName, other: Range
) -> None:
    search = Planted(space_of(choice("method.lambda", *FIVE), other), sampler, nearness(0.3))
    search.known_as = lambda params: params["method.lambda"]
    assert len(search.rest(most=5)) == 5


def drawn(sampler: Sampler, most: int) -> list[Params]:
    places = (sampler.propose(lambda params: True) for _ in range(most))
    return [params for params in places if params]


def test_the_seed_fixes_the_order_and_every_order_occurs() -> None:
    space = space_of(choice("method.lambda", 1, 2, 3, 4))
    orders = [
        tuple(p["method.lambda"] for p in drawn(Sampler("random", space, seed % 600, 0), 9))
        for seed in range(650)
    ]
    assert orders[:50] == orders[600:]
    counts = [orders[:600].count(order) for order in itertools.permutations((1, 2, 3, 4))]
    assert min(counts) > 5, "24 orders, each expected 25 times"
    assert max(counts) < 55


def test_a_thousand_million_points_are_not_listed() -> None:
    names = {"method.name": "conisi", "optimizer.name": "sgd"}
    space = space_of(*(Range(key, "int", 0, 999) for key in sorted(OWNERS)), **names)
    sampler = Sampler("random", space, 0, 0)
    assert sampler.points == 1000**4
    assert len(set(map(frozen, drawn(sampler, 50)))) == 50


@pytest.mark.parametrize("kind", ["float", "int"])
@pytest.mark.parametrize("log", [True, False])
def test_points_of_endless_ranges_lie_in_them(kind: Any, log: bool) -> None:
    wide = Range("method.lambda", kind, 1, 10**7, log=log)
    places = drawn(Sampler("random", space_of(wide), 3, 0), 400)
    values = [params["method.lambda"] for params in places]
    assert all(isinstance(value, int if kind == "int" else float) for value in values)
    assert all(wide.holds(value) for value in values)
    middle = math.sqrt(10**7) if log else 10**7 / 2
    assert 140 < sum(value < middle for value in values) < 260


LAMBDA = Range("method.lambda", "float", 0.0, 1.0)
RATE = Range("optimizer.lr", "float", 1e-6, 1e-3, log=True)
SPACE = space_of(LAMBDA, RATE)
BEST = 0.3


def quality(params: Mapping[str, Any]) -> float:
    return -((float(params["method.lambda"]) - BEST) ** 2)


def places(count: int, low: float, high: float, seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    lambdas = generator.uniform(low, high, count)
    rates = np.exp(generator.uniform(np.log(1e-6), np.log(1e-3), count))
    pairs = zip(lambdas.tolist(), rates.tolist(), strict=True)
    return [{"method.lambda": weight, "optimizer.lr": rate} for weight, rate in pairs]


def taught(space: Space, elsewhere: Sequence[Mapping[str, Any]]) -> Sampler:
    """TPE that was told scores of places that it has not proposed."""
    sampler = Sampler("tpe", space, 0, 6)
    for number, params in enumerate(elsewhere):
        sampler.tell(f"{number}", params, quality(params))
    return sampler


def draws_by_model(sampler: Sampler) -> set[str]:
    """The knobs of the next proposal that the model draws."""
    sampler.propose(lambda params: True)
    assert sampler.asked is not None
    return set(sampler.asked.relative_params)


@pytest.mark.parametrize("count", [0, 9, 10, 30])
def test_ten_told_scores_end_the_blind_draws(count: int) -> None:
    sampler = taught(SPACE, places(count, 0, 1))
    knobs = {"method.lambda", "optimizer.lr"} if count >= 10 else set()
    assert draws_by_model(sampler) == knobs
    assert sampler.asked is not None
    assert [t.params for t in sampler_trials(sampler)] == places(count, 0, 1)
    assert all(t.distributions == sampler.asked.distributions for t in sampler_trials(sampler))


def test_failed_configurations_do_not_stop_a_sampler() -> None:
    """They are told the worst value there is."""
    sampler = taught(SPACE, places(4, 0, 1))
    for number, params in enumerate(places(12, 0, 1, seed=1)):
        sampler.tell(f"failed{number}", params, -math.inf)
    for number in range(4):
        assert draws_by_model(sampler) == {"method.lambda", "optimizer.lr"}
        sampler.begin(f"drawn{number}")
        sampler.tell(f"drawn{number}", {}, -math.inf if number % 2 else 0.5)
    assert len(sampler_trials(sampler)) == 20 and sampler_trials(sampler, TrialState.RUNNING) == []


@pytest.mark.parametrize(
    "params",
    [
        {"method.lambda": 1.1, "optimizer.lr": 1e-4},
        {"method.lambda": 0.5, "optimizer.lr": 1e-2},
        {"method.lambda": 0.5},
        {"method.lambda": "all", "optimizer.lr": 1e-4},
    ],
)
def test_what_lies_outside_of_the_ranges_is_no_lesson(params: dict[str, Any]) -> None:
    assert distributions(SPACE, params) is None
    sampler = Sampler("tpe", SPACE, 0, 0)
    sampler.tell("outside", params, 1.0)
    assert sampler_trials(sampler, *TrialState) == []


def test_trap_other_choices_elsewhere_neither_stop_a_sampler_nor_hide_a_knob() -> None:
    now = space_of(choice("encoder.pooling", "mean", "cls"), LAMBDA)
    pooled = ("cls", "max", "mean", "last")
    elsewhere = [
        {**params, "encoder.pooling": pooled[index % 4]}
        for index, params in enumerate(places(20, 0, 1))
    ]
    sampler = taught(now, elsewhere)
    assert len(sampler_trials(sampler)) == 10
    assert draws_by_model(sampler) == {"encoder.pooling", "method.lambda"}


@pytest.mark.parametrize("finite", [True, False])
def test_random_points_are_one_sequence_however_often_it_is_resumed(finite: bool) -> None:
    space = space_of(Range("optimizer.epochs", "int", 1, 40), *([] if finite else [LAMBDA]))
    whole, parts = Planted(space, "random", lambda params: 0.0), list[dict[str, Any]]()
    expected = [whole.next() for _ in range(20)]
    for size in (5, 1, 14):
        again = Planted(space, "random", lambda params: 0.0)
        again.held = {frozen(params) for params in parts}
        parts += [params for params in (again.next() for _ in range(size)) if params]
    assert parts == expected
