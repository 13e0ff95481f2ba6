"""Trials that fail, and limits that end a search before its trials do."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_spaces import sampler_trials
from processes import Clock
from search_samples import (
    LAMBDA,
    finished,
    knob,
    lambda_space,
    queue_of,
    rows,
    run_here,
    run_planted,
    statuses,
    tiny_space,
)
from stand_in import StandIn, by

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Result
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.queue import Queue
from tune_sentcl.tuning.search import SearchOutcome, run_and_confirm
from tune_sentcl.tuning.session import Limits


def test_time_is_over_when_the_clock_says_so() -> None:
    clock = Clock()
    limits = Limits(max_seconds=10.0, clock=clock)
    assert (limits.seconds_left(), limits.stop_reason()) == (10.0, None)
    clock.now = 9.5
    assert (limits.seconds_left(), limits.stop_reason()) == (0.5, None)
    clock.now = 10.0
    assert limits.stop_reason() == "the time of --max-time is over"
    clock.now = 0.0
    assert limits.stop_reason(), "what is spent stays so"


def test_only_a_running_trial_is_overdue() -> None:
    clock = Clock()
    limits = Limits(trial_seconds=10.0, clock=clock)
    limits.started("first", 0.0)
    clock.now = 10.0
    limits.started("second", 0.0)
    clock.now = 10.5
    assert [limits.overdue(name) for name in ("first", "second", "third")] == [True, False, False]
    limits.ended("first")
    assert not limits.overdue("first") and not Limits(clock=clock).overdue("second")


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 50), st.sampled_from([0.0, 0.25, 1.0])),
        max_size=8,
    ),
    st.integers(1, 100),
)
def test_gpu_seconds_are_those_of_ended_and_of_running_trials(
    trials: list[tuple[int, int, float]], most: int
) -> None:
    """Against the sum over seconds, one by one."""
    clock = Clock()
    limits = Limits(max_gpu_seconds=float(most), clock=clock)
    used = 0.0
    for second in range(101):
        clock.now = float(second)
        for number, (start, length, gpus) in enumerate(trials):
            if second == start + length:
                limits.ended(str(number))
            if second == start:
                limits.started(str(number), gpus)
        assert bool(limits.stop_reason()) == (used >= most - 1e-9)
        if limits.stop_reason():
            return
        using = sum(g for s, n, g in trials if s <= second < s + n)
        expected = (most - used) / using if using else math.inf
        assert limits.seconds_left() == pytest.approx(expected)
        used += using


def test_a_search_that_gives_up_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", *(n / 9 for n in range(9))), tmp_path / "study"

    def fate(config: TrialConfig) -> Any:
        return "fail" if config.dotted()["method.lambda"] < 0.75 else "finish"

    for most, ran, failures, to_run in ((5, 5, 5, 9), (4, 9, 7, 7), (1, 7, 7, 7)):
        outcome, _ = run_planted(space, study, StandIn(study, fate, at_once=1), max_failures=most)
        assert (outcome.ran, outcome.failures, outcome.to_run) == (ran, failures, to_run)
        if most == 5:
            ended = "5 trials in a row failed with ValueError"
            left = "9 of 9 trials are left, 5 of which have failed; repeat the command to continue"
            assert outcome.ended_by == ended
            assert f"{ended}: {left}" in capsys.readouterr().err.splitlines()
        else:
            assert outcome.ended_by == ""


def test_a_trial_beyond_its_time_fails_and_the_search_ends_well(tmp_path: Path) -> None:
    """Real training, of more steps than the time given holds."""
    grid = "grid.optimizer.epochs = [20000]"
    space, study = tiny_space(tmp_path / "space", grid), tmp_path / "study"
    outcome = run_here(space, study, trial_timeout=1.0, max_failures=1)
    found = {row["optimizer.epochs"]: row for row in rows(study)}
    assert (outcome.ran, outcome.failures, outcome.timed_out) == (1, 0, 1)
    assert found[20000]["error_type"] == "TrialTimeoutError"
    assert "the trial reached its time limit of 1 s" in found[20000]["error_text"]
    assert found[20000]["wall_seconds"] >= 1
    assert outcome.to_run == 1


def test_the_time_of_a_search_ends_within_a_trial(tmp_path: Path) -> None:
    grid = "grid.optimizer.epochs = [1, 20000, 2]"
    space, study = tiny_space(tmp_path / "space", grid), tmp_path / "study"
    outcome = run_here(space, study, max_time=1.0)
    assert outcome.ended_by == "the time of --max-time is over"
    assert outcome.ran <= 1, "how far it comes depends on the machine"
    assert (outcome.failures, outcome.to_run) == (0, 3 - outcome.ran)
    assert statuses(study) == ["finished"] * outcome.ran


DIVERGED, LOST = (Result("failed", error_type=e) for e in ("NonFiniteError", "WorkerLostError"))


def end_next(made: Queue, *ends: Result) -> None:
    for end in ends:
        assignment = made.next()
        assert assignment is not None
        made.end(assignment.trial_id, end)


@pytest.mark.parametrize(
    ("ends", "values"),
    [
        ([DIVERGED], [-math.inf]),
        ([LOST], None),
        ([finished(4.0), DIVERGED], [-math.inf]),
        ([finished(4.0), LOST], None),
        ([finished(4.0), finished(5.0), finished(6.0)], [5.0]),
    ],
)
def test_a_seed_that_fails_decides_what_is_told_and_ends_its_configuration(
    tmp_path: Path, ends: list[Result], values: list[float] | None
) -> None:
    made = queue_of(lambda_space(tmp_path, 0.1, ranges=LAMBDA), seeds=(0, 1, 2), sampled=1)
    end_next(made, *[finished(3.0)] * 3, *ends)
    assert [t.values for t in sampler_trials(made)] == [
        [3.0],
        *([] if values is None else [values]),
    ]
    assert made.finished


def confirm(
    folder: Path, *lambdas: float, confirm: int, max_failures: int
) -> tuple[SearchOutcome, list[tuple[float, int]]]:
    """A search that is confirmed; its outcome, and lambda and seed of each confirmation trial."""
    options = SearchOptions(
        launcher="local", gpus_per_trial=0.0, keep=0, confirm=confirm, max_failures=max_failures
    )
    study, space = folder / "study", lambda_space(folder / "space", *lambdas)
    question = ask(space, None, (0,), options)

    def fate(config: TrialConfig) -> Any:
        return "fail" if knob(config, "method.lambda") > 0.9 else "finish"

    stand_in = StandIn(study, fate, keep=False, at_once=1)
    outcome = run_and_confirm(question, str(study), by(stand_in))
    fresh = [row for row in rows(study) if row["origin"] == "confirm"]
    return outcome, sorted((row["method.lambda"], row["seed"]) for row in fresh)


def test_what_is_best_is_confirmed_though_other_trials_fail(tmp_path: Path) -> None:
    lambdas = (0.1, 0.92, 0.94, 0.96)
    first, _ = confirm(tmp_path, *lambdas, confirm=1, max_failures=3)
    assert (first.ran, first.failures, first.to_run) == (5, 3, 3)
    assert first.ended_by == "3 trials in a row failed with ValueError"
    second, fresh = confirm(tmp_path, *lambdas, confirm=2, max_failures=3)
    assert (second.ran, second.failures, second.ended_by) == (4, 3, "")
    assert fresh == [(0.1, 1000), (0.1, 1001)]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_trial_whose_worker_is_lost_is_tried_as_often_as_asked(
    tmp_path: Path, retries: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends no search, and that its node ended it for memory says nothing of the trial."""
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose", lost_as="OutOfMemoryError")
    outcome, actions = run_planted(space, study, stand_in, retries=retries, max_failures=1)
    assert (outcome.failures, outcome.ended_by) == (1, "")
    assert actions == ["train"] * (retries + 1)
    (row,) = rows(study)
    assert row["error_type"] == "WorkerLostError"
    if retries == 3:
        assert row["error_text"] == "each of 4 tries lost its worker; the last error: gone"
        said = "lost its worker and is tried once more (1 of 3): gone"
        assert capsys.readouterr().err.count(said) == 1
    once = StandIn(study, lambda config: "lose_once")
    assert run_planted(space, study, once, retries=retries)[0].failures == (retries == 0)
