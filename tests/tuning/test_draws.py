"""Which configuration is proposed next: none twice, none left out, and nearer the best."""

import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any

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
    small_ranges,
    space_of,
    told,
)

from tune_sentcl.space import Range, load_space
from tune_sentcl.tuning.sampler.sampling import Params, Sampler
from tune_sentcl.tuning.search_options import SamplerName

TOY = {"encoder.checkpoint": "toy", "data.source": "toy"}
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
        assert [trial.params for trial in told(search.sampler)] == proposed
        states = {trial.state for trial in told(search.sampler, *TrialState)}
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


LAMBDA_SPACE = load_space("scl/lambda", TOY)


class LambdaSearch(Planted):
    """SCL's lambda with SBERT beside it, the grid told; SBERT is best of all, or worst."""

    def __init__(self, sampler: SamplerName, seed: int, best: float, *, sbert_leads: bool) -> None:
        self.best = best

        def quality(params: Mapping[str, Any]) -> float:
            if params["method.name"] == "sbert":
                return 1.0 if sbert_leads else -9.0
            return -((float(params["method.lambda"]) - best) ** 2)

        super().__init__(LAMBDA_SPACE, sampler, quality, seed=seed)
        grid = [self.space.params(config) or {} for config in self.space.configurations]
        self.held = set(map(frozen, grid))
        for params in grid:
            self.sampler.tell(str(frozen(params)), params, quality(params))

    def distances(self, count: int) -> list[float]:
        places = [self.next() for _ in range(count)]
        return [abs(params["method.lambda"] - self.best) for params in places if params]


def mean_distance(sampler: SamplerName, *, sbert_leads: bool) -> float:
    """From the best lambda, over 20 trials after the grid and 8 seeds, for two best lambdas."""
    return statistics.fmean(
        distance
        for best in (0.1, 0.9)
        for seed in range(8)
        for distance in LambdaSearch(sampler, seed, best, sbert_leads=sbert_leads).distances(20)
    )


@pytest.mark.parametrize(("sbert_leads", "share"), [(True, 0.85), (False, 0.7)])
def test_trap_tpe_goes_on_learning_where_a_method_without_ranges_leads(
    sbert_leads: bool, share: float
) -> None:
    blind = mean_distance("random", sbert_leads=sbert_leads)
    assert 0.35 < blind < 0.45
    assert mean_distance("tpe", sbert_leads=sbert_leads) < share * blind
