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

ENDS = st.sampled_from(["finished", "pruned", "ValueError", "KeyError"])


@given(st.lists(ENDS, max_size=30), st.integers(1, 4))
def test_failures_count_in_a_row_and_by_their_type(ends: list[str], most: int) -> None:
    budget = Budget(max_failures=most)
    for place, end in enumerate(ends):
        tell(budget, f"trial{place}", end)
        assert bool(budget.stop_reason()) == any(
            gives_up(ends[: n + 1], most) for n in range(place + 1)
        )


def tell(budget: Budget, name: str, end: str) -> None:
    """A trial ends."""
    if end.endswith("Error"):
        budget.result("failed", end)
    elif end == "finished":
        budget.result("finished", None)
    budget.ended(name)


def gives_up(ends: list[str], most: int) -> bool:
    """Whether the last end completes a row of its kind."""
    if not ends[-1].endswith("Error"):
        return False
    counting = [end for end in ends if end != "pruned"][-most:]
    return counting == [ends[-1]] * most


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


def failing(folder: Path, *, failures: int, good: int) -> Any:
    rates = [f"{n + 1}e30" for n in range(failures)] + [f"{n + 1}e-3" for n in range(good)]
    return tiny_space(folder, f"grid.optimizer.lr = [{', '.join(rates)}]")


def fails(config: TrialConfig) -> Any:
    return "fail" if config.optimizer.lr > 1 else "finish"


def test_a_search_gives_up_where_nothing_but_one_error_comes_and_can_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = failing(tmp_path / "space", failures=7, good=2), tmp_path / "study"
    outcome, _ = run_planted(space, study, StandIn(study, fails, at_once=1))
    assert (outcome.ran, outcome.failures, outcome.to_run) == (5, 5, 9)
    assert outcome.ended_by == "5 trials in a row failed with ValueError"
    told = f"{outcome.ended_by}: 9 of 9 runs are left, 5 of which have failed; repeat the command"
    assert f"{told} to go on" in capsys.readouterr().err.splitlines()
    assert statuses(study) == ["failed"] * 5
    outcome, _ = run_planted(space, study, StandIn(study, fails, at_once=1), max_failures=4)
    assert (outcome.ran, outcome.failures, outcome.to_run) == (9, 7, 7)
    assert statuses(study) == ["failed"] * 7 + ["finished"] * 2
    outcome, _ = run_planted(space, study, StandIn(study, fails, at_once=1), max_failures=1)
    assert (outcome.ran, outcome.failures, outcome.to_run) == (7, 7, 7)
    assert outcome.ended_by == ""
    assert statuses(study) == ["failed"] * 7 + ["finished"] * 2


def test_a_search_that_is_done_is_not_out_of_time(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study)
    outcome, _ = run_planted(space, study, max_time=0.0)
    assert (outcome.ran, outcome.to_run, outcome.ended_by) == (0, 0, "")


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_trial_is_run_again_as_often_as_asked(tmp_path: Path, retries: int) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose")
    outcome, actions = run_planted(space, study, stand_in, retries=retries)
    assert (outcome.failures, actions) == (1, ["train"] * (retries + 1))
    stand_in = StandIn(study, lambda config: "lose_once")
    outcome, actions = run_planted(space, study, stand_in, retries=retries)
    assert outcome.failures == (retries == 0)


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
