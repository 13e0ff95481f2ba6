"""Trials that fail: what the sampler learns of them, when they run again, what they hold up."""

import math
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers._tpe.sampler import _get_pruned_trial_score
from optuna.trial import FrozenTrial, TrialState
from search_samples import (
    LAMBDA,
    drive,
    finished,
    knob,
    lambda_space,
    proposals,
    rows,
    run_planted,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Result
from tune_sentcl.launch import run_and_confirm, run_prepared
from tune_sentcl.space import Space
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.sampler.sampling import Placeholders, SamplerName
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import SearchOutcome
from tune_sentcl.tuning.session_study import rank_keys

RATES = "optimizer.lr = { low = 1e-6, high = 1e-2, log = true }"
EDGE = 1e-3
DIVERGED, LOST = (Result("failed", error_type=e) for e in ("NonFiniteError", "WorkerLostError"))
Seen = list[tuple[Any, ...]]


def rate_space(folder: Path) -> Space:
    grid = "grid.optimizer.lr = [1e-5, 1e-4, 1e-3]"
    return tiny_space(folder, grid, ranges=RATES, trials=3)


def diverges(config: TrialConfig) -> bool:
    return config.optimizer.lr > EDGE


def scored(config: TrialConfig, objectives: int = 1) -> Result:
    """Scores rise towards a rate beyond which every trial fails."""
    quality = math.log10(config.optimizer.lr)
    return finished(*[80 + (5 - 3 * n) * quality for n in range(objectives)])


def seen(made: Proposals, *states: TrialState) -> Seen:
    """What the sampler models, in no order."""
    found: list[FrozenTrial] = made.sampler_study._study.get_trials(deepcopy=False, states=states)
    return sorted((t.state, sorted(t.params.items()), t.values) for t in found)


def learned(made: Proposals) -> Seen:
    return seen(made, TrialState.COMPLETE, TrialState.PRUNED)


@pytest.mark.parametrize(("sampler", "sampled"), [("tpe", 40), ("random", 40)])
@pytest.mark.parametrize("objectives", [1, 2])
@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_the_sampler_leaves_settings_that_fail(
    tmp_path: Path, sampler: SamplerName, sampled: int, objectives: int, seeds: tuple[int, ...]
) -> None:
    """A quarter of the range fails. Without values of failures TPE draws 38 to 40 of 40 there.

    So it does if failures, or the grid, which has all seeds, are better than configurations with
    one seed.
    """
    made = proposals(
        rate_space(tmp_path),
        seeds=seeds,
        sampled=sampled,
        sampler=sampler,
        objectives=objectives,
        reduction=3,
    )

    def judge(config: TrialConfig) -> Result:
        return DIVERGED if diverges(config) else scored(config, objectives)

    failed = [a for a in drive(made, judge) if diverges(a.config)]
    assert 0 < len(failed) < sampled / 2
    assert len(learned(made)) == sampled + 3


def test_tpe_ranks_a_failed_configuration_below_a_stopped_one(tmp_path: Path) -> None:
    """With a value, even the worst one, it would be better than all stopped ones."""
    made = proposals(lambda_space(tmp_path, 0.1, 0.3, 0.5, ranges=LAMBDA))
    for end in (finished(3.0), DIVERGED, Result("pruned", rows=2, dev=-9.0)):
        assignment = made.next()
        assert assignment is not None
        made.end(assignment.trial_id, end)
    study = made.sampler_study._study
    told = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.PRUNED]
    ranks = {t.params["method.lambda"]: _get_pruned_trial_score(t, study) for t in told}
    assert ranks[0.5] < ranks[0.3]


def test_failures_of_machines_teach_nothing(tmp_path: Path) -> None:
    made = proposals(rate_space(tmp_path), sampled=6)
    given = drive(made, lambda config: LOST if diverges(config) else scored(config))
    kept = [a for a in given if not diverges(a.config)]
    assert len(kept) < len(given)
    assert len(learned(made)) == len(kept)


def test_failures_before_the_first_value_are_told_with_it_and_move_with_the_worst(
    tmp_path: Path,
) -> None:
    made = proposals(lambda_space(tmp_path, 0.1, 0.3, 0.5, 0.7, ranges=LAMBDA), objectives=2)
    ends = [DIVERGED, finished(5.0, 5.0), finished(6.0, 4.0), DIVERGED]
    told: list[Seen] = []
    for end in ends:
        assignment = made.next()
        assert assignment is not None
        made.end(assignment.trial_id, end)
        told.append(learned(made))
    assert told[0] == []
    assert below(told[1]) == {0.1: [5.0, 5.0]}
    assert below(told[3]) == {0.1: [5.0, 4.0], 0.7: [5.0, 4.0]}


def below(told: Seen) -> dict[float, Any]:
    """The values just under those of which the worst is the one that is meant, by lambda."""
    planted = ([5.0, 5.0], [6.0, 4.0])
    found = {params[0][1]: values for _, params, values in told if values not in planted}
    return {at: [math.nextafter(v, math.inf) for v in values] for at, values in found.items()}


@pytest.mark.parametrize(
    ("ends", "value"),
    [
        ([DIVERGED, finished(4.0), finished(6.0)], 5.0),
        ([DIVERGED, DIVERGED, Result("pruned", rows=2, dev=1.0)], math.nextafter(3.0, 0.0)),
        ([DIVERGED, LOST, LOST], math.nextafter(3.0, 0.0)),
        ([LOST, finished(4.0), finished(6.0)], None),
    ],
)
def test_of_several_seeds_those_that_finished_count(
    tmp_path: Path, ends: list[Result], value: float | None
) -> None:
    space = lambda_space(tmp_path, 0.1, 0.3, ranges=LAMBDA)
    made = proposals(space, seeds=(0, 1, 2), sampler="random")
    for end in [finished(3.0)] * 3 + ends:
        assignment = made.next()
        assert assignment is not None
        made.end(assignment.trial_id, end)
    found = {params[0][1]: values for _, params, values in learned(made)}
    assert found == {0.1: [3.0], **({} if value is None else {0.3: [value]})}
    assert rank_keys(made.groups, made.history).keys() == {
        made.groups.configuration_of(next(iter(made.groups.trials())))
    }


@pytest.mark.parametrize("sampler", ["tpe", "random"])
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_sampler_rebuilt_from_the_study_knows_what_the_one_before_knew(
    tmp_path: Path, sampler: SamplerName, seeds: tuple[int, ...]
) -> None:
    space, study = rate_space(tmp_path / "space"), tmp_path / "study"

    def fate(config: TrialConfig) -> Any:
        again = config.optimizer.lr in (1e-4, 1e-3) and config.seed == 0
        return "fail" if diverges(config) or again else "finish"

    def search(trials: int, stand_in: StandIn) -> Proposals:
        options = SearchOptions(
            trials=trials, sampler=sampler, launcher="local", gpus_per_trial=0.0, max_failures=99
        )
        prepared = prepare(space, None, seeds, options)
        run_prepared(prepared, str(study), stand_in)
        return prepared.proposals

    lived = search(5, StandIn(study, fate, error="OutOfMemoryError", at_once=1))
    rebuilt: list[Seen] = []

    class Looks(StandIn):
        def __call__(self, session: Any) -> None:
            rebuilt.append(learned(session.proposals))
            super().__call__(session)

    search(5, Looks(study))
    assert rebuilt == [learned(lived)]
    assert len(rebuilt[0]) == 8


def test_a_failed_trial_that_finishes_now_has_its_own_value(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.1, 0.3, ranges=LAMBDA)
    first = drive(proposals(space), lambda config: finished(1.0))
    results = {first[0].trial_id: finished(1.0), first[1].trial_id: DIVERGED}
    made = proposals(space, results=results)
    assert len(learned(made)) == 2
    drive(made, lambda config: finished(9.0))
    assert [values for *_, values in learned(made)] == [[1.0], [9.0]]


def test_workers_of_a_small_grid_are_all_busy_at_once(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.1, 0.5, 0.9, ranges=LAMBDA), sampled=20)
    given = [made.next() for _ in range(8)]
    assert [a.origin for a in given if a] == ["grid"] * 3 + ["sampler"] * 5
    running = seen(made, TrialState.RUNNING)
    assert [params[0][1] for _, params, _ in running] == sorted(
        knob(a.config, "method.lambda") for a in given if a
    )
    assert made.next(idle=False) is None, "it would learn more before a worker is free"
    for assignment in given[:3]:
        assert assignment is not None
        made.end(assignment.trial_id, finished(1.0))
    assert made.next(idle=False) is not None
    assert len(seen(made, TrialState.RUNNING)) == 6


def test_a_stand_in_for_a_running_trial_goes_with_its_end(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.1, ranges=LAMBDA))
    placeholders, trial = (
        Placeholders(made.sampler_study._study),
        made.sampler_study.running_trial(next(iter(made.groups))),
    )
    assert trial is not None
    placeholders.add("a", trial)
    assert "a" in placeholders and len(seen(made, TrialState.RUNNING)) == 1
    placeholders.drop("a")
    placeholders.drop("a")
    assert "a" not in placeholders and seen(made, TrialState.RUNNING) == []


def fails_above(edge: float) -> Any:
    return lambda config: "fail" if knob(config, "method.lambda") > edge else "finish"


def lambdas_of(stand_in: StandIn, study: Path) -> list[float]:
    values = {row["trial_id"]: row["method.lambda"] for row in rows(study)}
    return [values[name] for name, _ in stand_in.handed]


@pytest.mark.parametrize("at_once", [1, 3])
def test_failed_trials_run_behind_new_ones_and_sampled_ones(tmp_path: Path, at_once: int) -> None:
    study = tmp_path / "study"
    old = lambda_space(tmp_path / "space", 0.1, 0.92, 0.94, 0.96, ranges=LAMBDA)
    run_planted(old, study, StandIn(study, fails_above(0.9)))
    grown = lambda_space(tmp_path / "space", 0.1, 0.92, 0.94, 0.96, 0.2, ranges=LAMBDA)
    stand_in = StandIn(study, old_fails, at_once=at_once)
    outcome, _ = run_planted(grown, study, stand_in, trials=4, sampler="tpe", max_failures=2)
    order = lambdas_of(stand_in, study)
    assert (order[0], order[-3:]) == (0.2, [0.92, 0.94, 0.96])
    assert (outcome.ran, outcome.failures, outcome.to_run) == (8, 3, 3)
    assert (outcome.ended_by, outcome.untried) == ("", 0), "no new failure, and so no row of them"


def old_fails(config: TrialConfig) -> Any:
    return "fail" if knob(config, "method.lambda") in (0.92, 0.94, 0.96) else "finish"


def test_failures_of_another_kind_count(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.92, 0.94, 0.96), tmp_path / "study"
    run_planted(space, study, StandIn(study, old_fails))
    other = StandIn(study, old_fails, error="KeyError", at_once=1)
    outcome, _ = run_planted(space, study, other, max_failures=2)
    assert (outcome.ran, outcome.to_run, outcome.untried) == (2, 3, 0)
    assert "KeyError" in outcome.ended_by


def confirmed(
    space: Space, study: Path, stand_in: StandIn, confirm: int, max_failures: int
) -> SearchOutcome:
    options = SearchOptions(
        launcher="local", gpus_per_trial=0.0, keep=0, confirm=confirm, max_failures=max_failures
    )
    stand_in.keep = False
    return run_and_confirm(prepare(space, None, (0,), options), str(study), stand_in)


def test_what_is_best_is_confirmed_though_other_trials_fail(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.92, 0.94, 0.96), tmp_path / "study"
    first = confirmed(space, study, StandIn(study, old_fails, at_once=1), 1, max_failures=3)
    assert (first.ran, first.failures, first.to_run) == (5, 3, 3)
    assert first.ended_by == "3 trials in a row failed with ValueError"
    second = confirmed(space, study, StandIn(study, old_fails, at_once=1), 2, max_failures=3)
    assert (second.ran, second.failures, second.ended_by) == (4, 3, "")
    fresh = [row for row in rows(study) if row["origin"] == "confirm"]
    assert {row["method.lambda"] for row in fresh} == {0.1}
    assert sorted(row["seed"] for row in fresh) == [1000, 1001]


def test_a_search_that_gives_up_before_its_end_confirms_nothing(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.92, 0.94, 0.2), tmp_path / "study"
    outcome = confirmed(space, study, StandIn(study, old_fails, at_once=1), 1, max_failures=2)
    assert (outcome.ran, outcome.to_run, outcome.untried) == (3, 3, 1)


def test_a_worker_that_its_node_ended_for_memory_says_nothing_of_the_trial(
    tmp_path: Path,
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose", lost_as="OutOfMemoryError")
    run_planted(space, study, stand_in)
    assert [row["error_type"] for row in rows(study)] == ["WorkerLostError"]
