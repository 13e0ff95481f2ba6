"""Which configurations run with further seeds, and what a search spends on them."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from restated_ladder import Search, Trial
from search_samples import (
    draw_in_order,
    finished,
    knob,
    lambda_space,
    proposals,
    rows,
    run_planted,
    statuses,
)
from stand_in import StandIn
from stops import Stopped, bury, writes

from tune_sentcl.analysis import configurations
from tune_sentcl.config import TrialConfig
from tune_sentcl.export.choice import Choice
from tune_sentcl.history import Assignment, Result
from tune_sentcl.objective import DEFAULT
from tune_sentcl.store.reading.study import Study
from tune_sentcl.tuning.seed_ladder import Spending

CHOICES = [n / 10 for n in range(9)]
RANGES = f"method.lambda = {{ choices = {CHOICES} }}"
FAILED, PRUNED = Result("failed"), Result("pruned", rows=2, dev=10.0)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[float, str]]:
    """The configurations by lambda; every sampler draws them in their order."""
    made = proposals(lambda_space(tmp_path_factory.mktemp("all"), *CHOICES))
    with pytest.MonkeyPatch.context() as patch:
        draw_in_order(patch)
        yield {knob(a.config, "method.lambda"): a.configuration for a in made.assignments()}


class Driver:
    """A search with planted results and its restatement."""

    def __init__(self, folder: Path, names: dict[float, str], asked: dict[str, Any]) -> None:
        asked = dict(asked)
        grid = CHOICES[3 : 3 + asked.pop("grid")]
        self.space = lambda_space(folder, *grid, ranges=RANGES)
        self.asked = asked
        self.search = Search(
            [names[value] for value in grid],
            list(names.values()),
            len(asked["seeds"]),
            asked["sampled"],
            asked["reduction"],
            asked["budget"],
        )
        self.results: dict[str, Result] = {}
        self.running: dict[str, Assignment] = {}
        self.given: dict[str, Assignment] = {}
        self.made = proposals(self.space, sampler="random", **asked)

    def trial(self, trial_id: str) -> Trial:
        given = self.given[trial_id]
        return given.configuration, self.asked["seeds"].index(given.config.seed)

    def next(self) -> Trial | None:
        """Hand out a trial, which must be one that the restatement names."""
        scores = {
            self.trial(n): r.values[0] if r.status == "finished" else None
            for n, r in self.results.items()
        }
        expected = self.search.next_trials(scores, [*map(self.trial, self.running)])
        assignment = self.made.next()
        if assignment is None:
            assert not expected
            return None
        self.given[assignment.trial_id] = self.running[assignment.trial_id] = assignment
        found = self.trial(assignment.trial_id)
        assert found in expected
        return found

    def end(self, chance: random.Random) -> None:
        """End a running trial."""
        assignment = self.running.pop(chance.choice(sorted(self.running)))
        name, kind = assignment.trial_id, chance.random()
        result = finished(chance.randrange(4))
        if kind < 0.3:
            result = PRUNED if kind < 0.2 and assignment.origin == "sampler" else FAILED
        self.results[name] = result
        self.made.end(name, result)

    def resume(self) -> None:
        """Forget all that the study does not hold."""
        self.running = {}
        failed = {name for name, result in self.results.items() if result.status == "failed"}
        self.search.again = {self.trial(name) for name in failed}
        held = [self.given[name] for name in self.results]
        adopted = {a.configuration: a.config for a in held if a.origin == "sampler"}
        self.made = proposals(
            self.space, sampler="random", results=self.results, adopted=adopted, **self.asked
        )
        for name in failed:
            del self.results[name]


@settings(max_examples=40, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "grid": st.sampled_from([1, 3]),
            "sampled": st.integers(0, 10).map(lambda few: 10 - few),
            "seeds": st.sampled_from([(2, 0, 1), (0, 1), (0,)]),
            "reduction": st.sampled_from([None, 2, 3]),
            "budget": st.sampled_from([float("inf"), 4.0, 7.0, 12.0]),
        }
    ),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.integers(0, 10**6).map(random.Random),
)
def test_each_trial_is_the_one_that_a_restatement_names(
    tmp_path_factory: pytest.TempPathFactory,
    names: dict[float, str],
    asked: dict[str, Any],
    workers: int,
    resumes: float,
    chance: random.Random,
) -> None:
    """In any order of the ends, with a resume after any of them."""
    driver = Driver(tmp_path_factory.mktemp("space"), names, asked)
    left = 20  # resumes; each runs the failed trials again
    while True:
        while len(driver.running) < workers and driver.next() is not None:
            pass
        assert driver.made.finished == (not driver.running)
        assert driver.made.done + len(driver.running) <= driver.made.total
        if not driver.running:
            break
        driver.end(chance)
        if left and chance.random() < resumes:
            driver.resume()
            left -= 1
    assert driver.made.done == driver.made.total == len(driver.results)


STEPS = 8
FIXED = "evaluation.every = 1\noptimizer.epochs = 4"
"""Of 64 rows in batches of 32: trials of `STEPS` steps."""


def rises(config: TrialConfig) -> list[tuple[int, float]]:
    """A point at each step; the scores rise slower with lambda, and slowest for the grid."""
    value = knob(config, "method.lambda")
    speed = (1 - value) * (value != 0.5) + random.Random(repr((value, config.seed))).random() / 3
    return [(32 * step, step * speed) for step in range(1, STEPS + 1)]


def ends(study: Path) -> dict[str, tuple[str, int]]:
    return {row["trial_id"]: (row["status"], row["steps"]) for row in rows(study)}


def seeds_of(study: Path) -> Counter[str]:
    """How many seeds each sampled configuration ran with."""
    return Counter(row["configuration"] for row in rows(study) if row["origin"] == "sampler")


@pytest.mark.parametrize(
    ("scheduler", "budget"),
    [pytest.param("race", None, marks=pytest.mark.long), ("asha", 7.0)],
)
def test_a_search_that_is_killed_again_and_again_ends_like_one_that_is_not(
    tmp_path: Path, names: dict[float, str], scheduler: str, budget: float | None
) -> None:
    """Each driver dies some writes later in its life than the one before."""
    space = lambda_space(tmp_path / "space", 0.5, ranges=RANGES, fixed=FIXED)
    asked: dict[str, Any] = {"scheduler": scheduler, "seeds": (0, 1, 2), "budget": budget}
    asked |= {"trials": 6, "sampler": "random", "keep": 0}

    def run(study: Path, allowed: int | None = None) -> None:
        with writes(study, allowed):
            run_planted(space, study, StandIn(study, at_once=1, curve=rises), **asked)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(whole)
    for allowed in count(9, 2):
        try:
            run(killed, allowed)
            break
        except Stopped:
            bury(killed)
    assert allowed > 15
    assert ends(killed) == ends(whole)
    assert ("pruned" in statuses(whole)) == (scheduler == "asha")
    assert max(seeds_of(whole).values()) > 1


@pytest.mark.parametrize(
    ("scheduler", "at_once"), [("race", 4), ("asha", 1), ("asha", 4), ("none", 4)]
)
def test_a_budget_is_spent_on_further_seeds_too(
    tmp_path: Path, scheduler: str, at_once: int
) -> None:
    """It is spent to about one training, and some configurations have further seeds."""
    ranges = f"method.lambda = {{ choices = {[n / 100 for n in range(99)]} }}"
    space = lambda_space(tmp_path / "space", 0.5, ranges=ranges, fixed=FIXED)
    study = tmp_path / "study"
    budget = 12.0 if scheduler == "asha" else 36.0
    asked: dict[str, Any] = {"scheduler": scheduler, "seeds": (0, 1, 2), "budget": budget}
    stand_in = StandIn(study, at_once=at_once, curve=rises)
    outcome, _ = run_planted(space, study, stand_in, sampler="random", **asked)
    sampled = [row for row in rows(study) if row["origin"] == "sampler"]
    cost = sum(row["steps"] for row in sampled) / STEPS
    assert budget - 1.5 < cost < budget + 1
    assert max(seeds_of(study).values()) >= (2 if scheduler == "asha" else 3)
    assert outcome.trials == len(rows(study)) == outcome.ran
    again, _ = run_planted(space, study, StandIn(study, curve=rises), sampler="random", **asked)
    assert (again.ran, again.trials) == (0, outcome.trials)


def test_what_was_stopped_gets_no_further_seed_without_a_scheduler_either(tmp_path: Path) -> None:
    """A later command that drops the scheduler runs the others whole."""
    space = lambda_space(tmp_path / "space", 0.5, ranges=RANGES, fixed=FIXED)
    study = tmp_path / "study"
    asked: dict[str, Any] = {"trials": 6, "sampler": "random", "seeds": (0, 1)}
    for scheduler in ("asha", "none"):
        stand_in = StandIn(study, at_once=1, curve=rises)
        run_planted(space, study, stand_in, scheduler=scheduler, **asked)
    stopped = {row["configuration"] for row in rows(study) if row["status"] == "pruned"}
    assert stopped
    assert seeds_of(study) == {name: 1 if name in stopped else 2 for name in seeds_of(study)}


def test_a_budget_ends_where_all_trials_fail_before_their_first_step() -> None:
    spending = Spending(1.0)
    for number in range(60):
        spending.begin(str(number), first_seed=True)
        spending.end(str(number), 0.0, first_seed=True)
    assert spending.left < 0


def test_the_kept_checkpoint_is_of_the_configuration_that_ranks_first(tmp_path: Path) -> None:
    """The best single trial is of another one, whose other seeds are worse."""
    space, study = lambda_space(tmp_path / "space", *CHOICES), tmp_path / "study"
    run_planted(space, study, StandIn(study, keep=True, at_once=1), seeds=(0, 1, 2), keep=1)
    read = Study.read(study)
    winner = configurations(read, (DEFAULT,))["configuration"].iloc[0]
    (kept,) = read.checkpoints()
    found = {row["trial_id"]: row for row in rows(study)}
    luckiest = max(found.values(), key=lambda row: row["objective"])
    assert found[kept]["configuration"] == winner != luckiest["configuration"]
    assert Choice.read(read, DEFAULT).best().trial_id == kept


def test_the_winner_has_a_checkpoint_though_another_one_led_before_its_further_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the order in which a repeated command names the seeds changes nothing."""

    def lucky(config: TrialConfig, *_: Any) -> float:
        return {0.5: 50.0}.get(knob(config, "method.lambda"), (60.0, 30.0)[config.seed])

    monkeypatch.setattr("stand_in.planted", lucky)
    ranges = "method.lambda = { choices = [0.25, 0.5] }"
    space, study = lambda_space(tmp_path / "space", 0.5, ranges=ranges), tmp_path / "study"
    asked: dict[str, Any] = {"scheduler": "race", "trials": 1, "keep": 1}
    run_planted(space, study, StandIn(study, at_once=1), seeds=(0, 1), **asked)
    (kept,) = Study.read(study).checkpoints()
    ends = {row["trial_id"]: row["method.lambda"] for row in rows(study)}
    assert (ends[kept], len(ends)) == (0.5, 4)
    assert run_planted(space, study, seeds=(1, 0), **asked)[0].ran == 0


def test_a_trial_that_runs_again_costs_what_its_attempt_has_cost() -> None:
    """Else a repeated command would find budget for a further seed."""
    spending = Spending(10.0)
    spending.end("fails", 0.9, first_seed=True)
    spending.end("stops", 0.1, first_seed=True)
    spending.begin("fails", first_seed=True)
    assert spending.left == pytest.approx(9.0) and not spending.is_idle
    spending.end("fails", 0.5, first_seed=True)
    assert spending.left == pytest.approx(9.4) and spending.is_idle
