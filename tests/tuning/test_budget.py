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


def test_what_failed_when_it_was_trained_again_runs_last(tmp_path: Path) -> None:
    """It stays finished, so that its status does not tell."""
    space, study = failing(tmp_path / "space", failures=3, good=2), tmp_path / "study"
    run_planted(space, study, keep=0)
    more = space.with_overrides({"evaluation.protocols": ["cosine", "relatedness"]})
    asked: dict[str, Any] = {"retrain": True, "keep": 0, "max_failures": 3}
    outcome, actions = run_planted(more, study, StandIn(study, fails, at_once=1), **asked)
    assert (outcome.ran, outcome.to_run, actions) == (3, 5, ["retrain"] * 3)
    outcome, _ = run_planted(more, study, StandIn(study, fails, at_once=1), **asked)
    assert (outcome.ran, outcome.failures, outcome.to_run) == (5, 3, 3), "the others came first"
    plain, _ = run_planted(space, study, keep=0)
    assert (plain.ran, plain.to_run) == (0, 0), "of what was asked for, nothing is left"
    outcome, _ = run_planted(more, study, **asked)
    assert (outcome.ran, outcome.failures, outcome.to_run) == (3, 0, 0)
    assert statuses(study) == ["finished"] * 5


def test_a_search_that_is_done_is_not_out_of_time(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study)
    outcome, _ = run_planted(space, study, max_time=0.0)
    assert (outcome.ran, outcome.to_run, outcome.ended_by) == (0, 0, "")


def test_failures_of_trials_side_by_side_leave_the_others_without_a_row(tmp_path: Path) -> None:
    space, study = failing(tmp_path / "space", failures=5, good=2), tmp_path / "study"
    stand_in = StandIn(study, fails, at_once=3)
    outcome, _ = run_planted(space, study, stand_in, max_failures=2)
    assert (outcome.ran, outcome.to_run) == (2, 7)
    assert len(rows(study)) == 2
    assert run_planted(space, study, StandIn(study))[0].ran == 7


def test_lost_workers_and_trials_out_of_time_end_no_search(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", *(n / 8 for n in range(8))), tmp_path / "study"
    outcome, actions = run_planted(
        space, study, StandIn(study, lambda config: "lose"), max_failures=1
    )
    assert (outcome.ran, outcome.failures, outcome.ended_by) == (8, 8, "")
    assert actions == ["train"] * 24, "each is tried three times"
    text = "each of 3 tries lost its worker; the last: gone"
    assert {row["error_text"] for row in rows(study)} == {text}
    late = run_here(space, study, trial_timeout=1e-9 + 1, max_failures=1, max_time=0.0)
    assert (late.ran, late.to_run) == (0, 8)


def test_a_lost_trial_that_comes_through_is_one_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose_once", at_once=1)
    outcome, actions = run_planted(space, study, stand_in)
    assert (outcome.ran, outcome.failures, actions) == (2, 0, ["train"] * 4)
    names = [name for name, _ in stand_in.handed]
    assert names == [names[0], names[0], names[2], names[2]], "at once, before all others"
    assert [row["attempt"] for row in rows(study)] == [1, 1]
    assert (
        capsys.readouterr().err.count("lost its worker and is tried once more (1 of 2): gone") == 2
    )


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
