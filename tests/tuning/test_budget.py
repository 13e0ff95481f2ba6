"""When a search ends before its trials do: failures in a row, time, GPU hours."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import Clock
from search_samples import lambda_space, rows, run_here, run_planted, statuses, tiny_space
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.tuning.budget import Budget


def test_time_is_over_when_the_clock_says_so() -> None:
    clock = Clock()
    budget = Budget(max_seconds=10.0, clock=clock)
    assert (budget.seconds_left(), budget.stop_reason()) == (10.0, None)
    clock.now = 9.5
    assert (budget.seconds_left(), budget.stop_reason()) == (0.5, None)
    clock.now = 10.0
    assert budget.stop_reason() == "the time of --max-time is over"
    clock.now = 0.0
    assert budget.stop_reason(), "what is spent stays so"


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
    budget = Budget(max_gpu_seconds=float(most), clock=clock)
    used = 0.0
    for second in range(101):
        clock.now = float(second)
        for number, (start, length, gpus) in enumerate(trials):
            if second == start + length:
                budget.ended(str(number))
            if second == start:
                budget.started(str(number), gpus)
        assert bool(budget.stop_reason()) == (used >= most - 1e-9)
        if budget.stop_reason():
            return
        using = sum(g for s, n, g in trials if s <= second < s + n)
        expected = (most - used) / using if using else math.inf
        assert budget.seconds_left() == pytest.approx(expected)
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
            left = "9 of 9 runs are left, 5 of which have failed; repeat the command to go on"
            assert outcome.ended_by == ended
            assert f"{ended}: {left}" in capsys.readouterr().err.splitlines()
        else:
            assert outcome.ended_by == ""


def test_a_search_that_is_done_is_not_out_of_time(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study)
    outcome, _ = run_planted(space, study, max_time=0.0)
    assert (outcome.ran, outcome.to_run, outcome.ended_by) == (0, 0, "")


def test_a_trial_beyond_its_time_fails_and_the_search_ends_well(tmp_path: Path) -> None:
    """Real training, of more steps than the time given holds."""
    grid = "grid.optimizer.epochs = [20000]"
    space, study = tiny_space(tmp_path / "space", grid), tmp_path / "study"
    outcome = run_here(space, study, trial_timeout=1.0, max_failures=1)
    found = {row["optimizer.epochs"]: row for row in rows(study)}
    assert (outcome.ran, outcome.failures, outcome.timed_out) == (1, 0, 1)
    assert found[20000]["error_type"] == "TrialTimeoutError"
    assert "the trial was given 1 s" in found[20000]["error_text"]
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
