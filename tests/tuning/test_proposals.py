"""Which trial comes next, and what the sampler is told; no training, the results are planted."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState
from search_samples import (
    LAMBDA,
    OBJECTIVES,
    NoInputs,
    drive,
    ended,
    finished,
    history,
    knob,
    lambda_space,
    proposals,
    tiny_space,
)
from tune_sentcl.tuning.configuration_groups import Group, Sampling

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Result
from tune_sentcl.space import Space, load_space
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.sampler.sampling import SamplerName
from tune_sentcl.tuning.trial_ids import TrialNamer

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "optimizer.epochs": 1}
FAILED, PRUNED = Result("failed"), Result("pruned", rows=2, dev=10.0)


@dataclass(frozen=True)
class Judge:
    """Plants the quality -(lambda - best)^2; SBERT is lambda 0."""

    best: float = 0.9

    def __call__(self, config: TrialConfig) -> Result:
        return finished(80 - 100 * (config.dotted().get("method.lambda", 0.0) - self.best) ** 2)


def told(made: Proposals) -> list[FrozenTrial]:
    """What the sampler was told, in the order in which it was."""
    return [trial for _, trial in made.sampler_study.reported()]


def two_by_two(folder: Path) -> Space:
    ranges = (
        "method.lambda = { choices = [0.3, 0.7] }\nmethod.num_positives = { choices = [1, 2] }"
    )
    return lambda_space(folder, 0.3, ranges=ranges, fixed="method.num_positives = 1")


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_grid_comes_first_and_exactly_once(tmp_path: Path, sampler: SamplerName) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, 0.1, ranges=LAMBDA)
    given = drive(proposals(space, sampled=5, sampler=sampler, seeds=(0, 1)), Judge())
    grid = [(knob(a.config, "method.lambda"), a.config.seed) for a in given[:6]]
    assert grid == [(0.3, 0), (0.3, 1), (0.7, 0), (0.7, 1), (0.1, 0), (0.1, 1)]
    assert [a.origin for a in given] == ["grid"] * 6 + ["sampler"] * 10
    assert len({a.trial_id for a in given}) == 16
    assert len({a.configuration for a in given}) == 8


def test_trap_a_grid_sampler_asked_for_ever_ends_after_the_grid(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA), sampler="grid")
    assert len(drive(made, Judge())) == 2
    assert made.next() is None
    assert not made.exhausted


def test_seeds_are_separate_trials_and_one_told_mean(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.3, ranges=LAMBDA), seeds=(0, 1, 2))
    first, second, third = (made.next() for _ in range(3))
    assert first and second and third
    assert made.end(first.trial_id, finished(10.0)) is None
    assert made.end(third.trial_id, finished(40.0)) is None
    assert told(made) == []
    found = made.end(second.trial_id, finished(25.0))
    assert found is not None
    name, trial = found
    assert (name, trial.state, trial.values) == (
        second.configuration,
        TrialState.COMPLETE,
        [25.0],
    )
    assert len(told(made)) == 1


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([PRUNED, finished(1.0)], TrialState.PRUNED),
        ([finished(1.0), PRUNED], TrialState.PRUNED),
        ([FAILED, finished(1.0)], TrialState.FAIL),
        ([PRUNED, FAILED], TrialState.FAIL),
        ([FAILED, PRUNED], TrialState.FAIL),
    ],
)
@pytest.mark.parametrize(("objectives", "origin"), [(1, "sampler"), (2, "grid")])
def test_failed_before_pruned_before_the_mean(
    tmp_path: Path, ends: list[Result], state: TrialState, objectives: int, origin: str
) -> None:
    lambdas = (0.3,)
    made = proposals(
        lambda_space(tmp_path, *lambdas, ranges=LAMBDA),
        seeds=(0, 1),
        sampled=1,
        objectives=objectives,
    )
    ends = [Result(r.status, r.values * objectives, r.rows, r.dev) for r in ends]
    if origin == "sampler":
        for _ in range(2):
            grid = made.next()
            assert grid is not None
            made.end(grid.trial_id, finished(*[1.0] * objectives))
    given = [made.next(), made.next()]
    answers = [made.end(a.trial_id, end) for a, end in zip(given, ends, strict=True) if a]
    assert [a.origin for a in given if a] == [origin] * 2
    assert answers[0] is None
    assert answers[1] is not None
    name, trial = answers[1]
    assert given[0] is not None
    assert name == given[0].configuration
    assert trial.state == state
    assert trial.values is None
    assert told(made)[-1].state == state


def test_trap_an_end_reported_twice_changes_nothing(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.3, ranges=LAMBDA), sampled=1)
    for _ in range(2):
        assignment = made.next()
        assert assignment is not None
        assert made.end(assignment.trial_id, finished(5.0)) is not None
        for again in (finished(9.0), PRUNED, FAILED):
            assert made.end(assignment.trial_id, again) is None
    assert [t.values for t in told(made)] == [[5.0], [5.0]]
    assert made.finished


@pytest.mark.parametrize(
    ("sampler", "status"), [("tpe", "finished"), ("tpe", "pruned"), ("random", "failed")]
)
def test_a_finite_space_ends_and_says_so(
    tmp_path: Path, sampler: SamplerName, status: str
) -> None:
    made = proposals(two_by_two(tmp_path), sampled=100, sampler=sampler, seeds=(0, 1))
    planted = {"finished": finished(1.0), "pruned": PRUNED, "failed": FAILED}[status]
    given = drive(made, lambda config: planted)
    assert len({a.configuration for a in given}) == 4
    assert len({a.trial_id for a in given}) == len(given) == 8
    assert made.exhausted
    assert made.total == 8
    assert made.next() is None


def test_the_sampler_learns_where_a_sampled_trial_was_pruned(tmp_path: Path) -> None:
    made = proposals(two_by_two(tmp_path), sampled=2)
    drive(made, lambda config: PRUNED)
    assert [trial.intermediate_values for trial in told(made)] == [{2: 10.0}] * 3


def test_a_finite_space_ends_while_its_trials_still_run(tmp_path: Path) -> None:
    made = proposals(two_by_two(tmp_path), sampled=100, sampler="random")
    given = [a for a in (made.next() for _ in range(20)) if a is not None]
    assert len({a.trial_id for a in given}) == len(given) == 4
    assert not ended(made)
    for assignment in given:
        made.end(assignment.trial_id, finished(1.0))
    assert ended(made)
    assert made.exhausted


def test_knobs_exist_only_where_the_method_has_them() -> None:
    made = proposals(load_space("scl/lambda", TOY), sampled=30, sampler="random")
    given = drive(made, Judge())
    methods = [t.params["method.name"] for t in told(made)]
    assert methods.count("sbert") == 1, "SBERT has no knobs, so the grid has tried all of it"
    assert methods.count("scl") == 5 + 30
    for trial in told(made):
        if trial.params["method.name"] == "sbert":
            assert set(trial.params) == {"method.name"}
        else:
            assert set(trial.params) == {"method.name", "method.lambda", "method.temperature"}
            assert set(trial.distributions) == set(trial.params)
    sbert = [a for a in given if a.config.method.name == "sbert"]
    assert len(sbert) == 1


def test_grid_points_outside_the_ranges_are_run_and_not_told(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, 0.9, ranges="method.lambda = { low = 0.0, high = 0.5 }")
    made = proposals(space, sampled=1)
    assert len(drive(made, Judge())) == 3
    assert [t.params["method.lambda"] <= 0.5 for t in told(made)] == [True, True]


def test_trap_while_no_worker_is_free_the_sampler_waits_for_what_the_running_grid_teaches(
    tmp_path: Path,
) -> None:
    made = proposals(lambda_space(tmp_path, 0.1, 0.9, ranges=LAMBDA), sampled=3)
    first, second = made.next(), made.next()
    assert first and second
    assert made.next(idle=False) is None
    assert not made.finished
    made.end(first.trial_id, finished(1.0))
    assert made.next(idle=False) is None
    made.end(second.trial_id, finished(2.0))
    assert [a.origin for a in (made.next(), made.next(), made.next()) if a] == ["sampler"] * 3
    assert made.next() is None


def test_a_failed_grid_does_not_make_sampled_trials_wait_for_each_other(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.1, 0.9, ranges=LAMBDA), sampled=3)
    for _ in range(2):
        assignment = made.next()
        assert assignment is not None
        made.end(assignment.trial_id, FAILED)
    assert all(made.next() for _ in range(3))


def test_a_sampler_that_learns_nothing_from_the_grid_does_not_wait(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.1, ranges=LAMBDA), sampled=2, sampler="random")
    assert all(made.next() for _ in range(3))


def test_a_grid_outside_the_ranges_is_not_waited_for(tmp_path: Path) -> None:
    ranges = "method.lambda = { low = 0.5, high = 1.0 }"
    made = proposals(lambda_space(tmp_path, 0.1, 0.2, ranges=ranges), sampled=4)
    assert all(made.next() for _ in range(6))


@pytest.mark.parametrize("sampler", ["tpe", "random"])
@pytest.mark.parametrize("kept", [3, 5])
def test_a_resumed_search_repeats_no_draw(tmp_path: Path, sampler: SamplerName, kept: int) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA)
    before = drive(proposals(space, sampled=5, sampler=sampler, seeds=(0, 1)), Judge())
    held = before[: 2 * kept]
    made = proposals(
        space,
        sampled=8,
        sampler=sampler,
        seeds=(0, 1),
        adopted={a.configuration: a.config for a in held if a.origin == "sampler"},
        results={a.trial_id: Judge()(a.config) for a in held},
    )
    assert made.total == 20
    after = drive(made, Judge())
    assert len(after) == 20 - len(held)
    assert len({a.trial_id for a in [*held, *after]}) == 20
    assert len({knob(a.config, "method.lambda") for a in [*held, *after]}) == 10
    assert len(told(made)) >= 10
    assert all(t.state == TrialState.COMPLETE for t in told(made))


def test_a_half_told_configuration_is_told_when_its_missing_seeds_end(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA)
    before = drive(proposals(space, sampled=1, seeds=(0, 1)), Judge())
    made = proposals(
        space,
        sampled=1,
        seeds=(0, 1),
        adopted={before[2].configuration: before[2].config},
        results={before[1].trial_id: finished(4.0), before[2].trial_id: finished(6.0)},
    )
    missing = drive(made, lambda config: finished(8.0))
    assert [a.trial_id for a in missing] == [before[0].trial_id, before[3].trial_id]
    assert [t.values for t in told(made)] == [[6.0], [7.0]]


@pytest.mark.parametrize(("sampler", "count"), [("tpe", 5), ("random", 5)])
def test_several_objectives_are_told_as_one_vector(
    tmp_path: Path, sampler: SamplerName, count: int
) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA)
    made = proposals(space, sampled=8, sampler=sampler, objectives=count, seeds=(0, 1))
    drive(made, lambda config: finished(*(float(i + config.seed) for i in range(count))))
    assert [t.values for t in told(made)] == [[0.5, 1.5, 2.5, 3.5, 4.5][:count]] * 10


def test_trap_categorical_choices_may_change_between_runs(tmp_path: Path) -> None:
    old, new = (
        lambda_space(
            tmp_path,
            0.3,
            ranges=f"method.num_positives = {{ choices = {choices} }}\n{LAMBDA}",
            fixed="method.num_positives = 1",
        )
        for choices in ("[1, 2]", '[1, 3, "all"]')
    )
    before = drive(proposals(old, sampled=8), Judge())
    made = proposals(
        new,
        sampled=20,
        adopted={a.configuration: a.config for a in before[1:]},
        results={a.trial_id: Judge()(a.config) for a in before},
    )
    drive(made, Judge())
    kept = [a for a in before if knob(a.config, "method.num_positives") == 1]
    assert 1 < len(kept) < len(before)
    assert len(told(made)) == 1 + 20
    assert {t.params["method.num_positives"] for t in told(made)} <= {1, 3, "all"}
    assert {t.params["method.num_positives"] for t in told(made)[len(kept) :]} >= {3, "all"}


def test_a_space_without_ranges_runs_its_grid(tmp_path: Path) -> None:
    made = proposals(tiny_space(tmp_path))
    assert len(drive(made, Judge())) == 1
    assert told(made) == []


@contextmanager
def counted_lines() -> Iterator[Counter[str]]:
    """How many lines of each file of the package run in the block; no clock, no machine."""
    lines: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/tune_sentcl/" not in name:
            return None
        if event == "line":
            lines[Path(name).name] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(("seeds", "objectives"), [((0,), 1), ((0, 1), 2)])
def test_a_proposal_costs_the_same_however_many_configurations_are_held(
    tmp_path: Path, seeds: tuple[int, ...], objectives: int
) -> None:
    ranges = f"{LAMBDA}\noptimizer.lr = {{ low = 1e-6, high = 1e-3, log = true }}"
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=ranges)

    def cost(held: int) -> Counter[str]:
        made = proposals(
            space, sampler="random", sampled=held + 5, seeds=seeds, objectives=objectives
        )
        for _ in range(held * len(seeds)):
            assignment = made.next()
            assert assignment is not None
            made.end(assignment.trial_id, finished(*[1.0] * objectives))
        with counted_lines() as lines:
            for _ in range(3 * len(seeds)):
                assignment = made.next()
                assert assignment is not None
                made.end(assignment.trial_id, finished(*[1.0] * objectives))
        return lines

    few, many = cost(12), cost(120)
    assert few["proposals.py"] > 0
    assert many == few


def test_taking_a_study_over_parses_no_config_of_a_sampled_trial(tmp_path: Path) -> None:
    """What many trials read is looked up once, and their configs stay text and dotted values."""
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA)

    def cost(held: int) -> Counter[str]:
        before = drive(proposals(space, sampler="random", sampled=held), Judge())
        results = {a.trial_id: Judge()(a.config) for a in before}
        adopted = {a.configuration: a.config for a in before[2:]}
        sampling = Sampling(sampled=held, sampler="random")
        made = Proposals(space, TrialNamer(NoInputs()), sampling)
        known = history(OBJECTIVES[:1], results, adopted)
        with counted_lines() as lines:
            made.resume_from(known)
        assert made.finished and len(told(made)) == held + 2
        return lines

    few, many = cost(12), cost(120)
    assert few["parsing.py"] == many["parsing.py"]
    assert few["inputs.py"] == many["inputs.py"]
    assert 8 * few["proposals.py"] < many["proposals.py"] < 12 * few["proposals.py"]


def test_where_seeds_were_stopped_is_their_mean_at_each_step() -> None:
    ends = {"a": Result("pruned", rows=2, dev=10.0), "b": Result("pruned", rows=2, dev=30.0)}
    ends |= {"c": Result("pruned", rows=4, dev=5.0), "d": Result("pruned")}
    group = Group("grid", tuple("abcd"), None, results=ends)
    assert group.intermediate_values() == {2: 20.0, 4: 5.0}
    group.results = dict(reversed(ends.items()))
    assert group.intermediate_values() == {2: 20.0, 4: 5.0}
