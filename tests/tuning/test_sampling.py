"""The samplers by name, and that they learn from what they are taught."""

import statistics
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from planted_spaces import Planted, choice, space_of

from tune_sentcl.space import Range, Space
from tune_sentcl.tuning.sampler.sampling import (
    SamplerName,
    add_trials,
    build_sampler,
    frozen_trial,
    suggest,
)

LAMBDA = Range("method.lambda", "float", 0.0, 1.0)
RATE = Range("optimizer.lr", "float", 1e-6, 1e-3, log=True)
SPACE = space_of(LAMBDA, RATE)
BEST = 0.3


def quality(params: Mapping[str, Any]) -> float:
    return -((float(params["method.lambda"]) - BEST) ** 2)


def past_trial(space: Space, params: Mapping[str, Any]) -> FrozenTrial | None:
    return frozen_trial(
        space, params, TrialState.COMPLETE, [quality(params)], {}, {"from": "elsewhere"}
    )


def places(count: int, low: float, high: float, seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    lambdas = generator.uniform(low, high, count)
    rates = np.exp(generator.uniform(np.log(1e-6), np.log(1e-3), count))
    pairs = zip(lambdas.tolist(), rates.tolist(), strict=True)
    return [{"method.lambda": weight, "optimizer.lr": rate} for weight, rate in pairs]


def study_of(sampler: SamplerName, points: int = 6, objectives: int = 1) -> optuna.Study:
    study = optuna.create_study(directions=["maximize"] * objectives)
    study.sampler = build_sampler(sampler, 0, points)
    return study


@pytest.mark.parametrize("points", [1, 4, 10, 30])
def test_no_draw_is_blind_once_the_grid_is_told(points: int) -> None:
    study = study_of("tpe", points)
    needed = min(10, points)
    for told, params in enumerate(places(needed, 0, 1)):
        assert told < needed
        assert study.ask().relative_params == {}
        found = past_trial(SPACE, params)
        assert found is not None
        add_trials(study, [found])
    assert set(study.ask().relative_params) == {"method.lambda", "optimizer.lr"}


@pytest.mark.parametrize("objectives", [1, 2])
def test_pruned_and_failed_trials_do_not_stop_a_sampler(objectives: int) -> None:
    study = study_of("tpe", objectives=objectives)
    ends = [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    for index, params in enumerate(places(16, 0, 1)):
        state = ends[index % 4]
        values = [quality(params)] * objectives if state == TrialState.COMPLETE else None
        curve = {2: 0.5} if state == TrialState.PRUNED and objectives == 1 else {}
        found = frozen_trial(SPACE, params, state, values, curve, {})
        assert found is not None
        add_trials(study, [found])
    for state in ends:
        trial = study.ask()
        assert suggest(trial, SPACE).keys() == trial.relative_params.keys()
        values = [quality(trial.params)] * objectives
        study.tell(trial, values if state == TrialState.COMPLETE else None, state=state)


def test_a_lesson_is_a_trial_in_the_ranges_of_now() -> None:
    params = {"method.lambda": 0.25, "optimizer.lr": 1e-4, "encoder.pooling": "mean"}
    found = frozen_trial(SPACE, params, TrialState.PRUNED, None, {3: 0.5}, {"from": "elsewhere"})
    assert found is not None
    assert found.params == {"method.lambda": 0.25, "optimizer.lr": 1e-4}
    assert found.state == TrialState.PRUNED
    assert found.intermediate_values == {3: 0.5}
    assert found.user_attrs == {"from": "elsewhere"}
    drawn = study_of("random").ask()
    suggest(drawn, SPACE)
    assert found.distributions == drawn.distributions


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
    assert frozen_trial(SPACE, params, TrialState.FAIL, None, {}, {}) is None


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.6), (-0.5, 1.5)], ids=["narrower", "wider"])
def test_a_sampler_learns_from_a_study_of_other_ranges(low: float, high: float) -> None:
    def distance(seed: int, *, with_past_trials: bool) -> float:
        search = Planted(SPACE, "tpe", quality, seed=seed)
        elsewhere = places(30, low, high, seed) if with_past_trials else []
        add_trials(search.study, filter(None, (past_trial(SPACE, params) for params in elsewhere)))
        found = [search.next() for _ in range(6)]
        return statistics.fmean(abs(params["method.lambda"] - BEST) for params in found if params)

    without = statistics.fmean(distance(seed, with_past_trials=False) for seed in range(10))
    learned = statistics.fmean(distance(seed, with_past_trials=True) for seed in range(10))
    assert learned < 0.75 * without


def test_trap_other_choices_elsewhere_neither_stop_a_sampler_nor_hide_a_knob() -> None:
    now = space_of(choice("encoder.pooling", "mean", "cls"), LAMBDA)
    study = study_of("tpe")
    elsewhere = ("cls", "max", "mean", "last")
    for index, params in enumerate(places(20, 0, 1)):
        found = past_trial(now, {**params, "encoder.pooling": elsewhere[index % 4]})
        assert (found is None) == (index % 2 == 1)
        add_trials(study, filter(None, [found]))
    trial = study.ask()
    assert trial.relative_params.keys() == {"encoder.pooling", "method.lambda"}
    assert suggest(trial, now).keys() == trial.relative_params.keys()


def test_lessons_of_the_same_knobs_share_their_ranges() -> None:
    space = space_of(choice("method.name", "sbert", "scl"), LAMBDA)
    study = study_of("tpe")
    kinds: list[dict[str, Any]] = [
        {"method.name": "sbert"},
        {"method.name": "scl", "method.lambda": 0.5},
    ]
    past_trials = [frozen_trial(space, p, TrialState.FAIL, None, {}, {}) for p in kinds * 5]
    add_trials(study, filter(None, past_trials))
    kept = [trial.distributions for trial in study.get_trials(deepcopy=False)]
    assert len({id(ranges) for ranges in kept}) == 2
    assert [set(ranges) for ranges in kept] == [set(kind) for kind in kinds * 5]


def test_trap_samplers_are_built_without_a_warning() -> None:
    names: tuple[SamplerName, ...] = ("tpe", "random", "grid")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in names:
            build_sampler(name, 0, 3)
