"""Which trial comes next, and what the sampler is told; no training, the results are planted."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from planted_spaces import sampler_trials
from search_samples import (
    LAMBDA,
    drive,
    finished,
    knob,
    lambda_space,
    proposals,
    tiny_space,
)

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Assignment, Result
from tune_sentcl.space import Space
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.search_options import SamplerName, SchedulerName

DIVERGED, LOST = (Result("failed", error_type=e) for e in ("NonFiniteError", "WorkerLostError"))
SHARES = (1 / 16, 1 / 4, 1.0)


def judge(config: TrialConfig) -> Result:
    """Plants the quality -(lambda - 0.9)^2; SBERT is lambda 0."""
    return finished(80 - 100 * (config.dotted().get("method.lambda", 0.0) - 0.9) ** 2)


@dataclass
class Trained:
    """A study in memory: what was handed out, by trial and share, and how it ended."""

    space: Space
    given: list[tuple[str, float]] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    sampled: dict[str, TrialConfig] = field(default_factory=dict)

    def search(self, *, workers: int = 1, **options: Any) -> Proposals:
        """A search by so many workers, whose trials end in any order."""
        usual = {"sampler": "random", "scheduler": "halving", "shares": SHARES}
        study = {"adopted": self.sampled, "results": self.results}
        made = proposals(self.space, **{**usual, **study, **options})
        running: list[Assignment] = []
        generator = random.Random(0)
        while not made.finished:
            assignment = made.next() if len(running) < workers else None
            if assignment is None:
                assert running, "nothing runs, so nothing can be waited for"
                self.end(made, running.pop(generator.randrange(len(running))))
                continue
            running.append(assignment)
            self.given.append((assignment.trial_id, assignment.until))
            if assignment.origin == "sampler":
                config = assignment.config.model_copy(update={"seed": 0})
                self.sampled.setdefault(assignment.configuration, config)
        return made

    def end(self, made: Proposals, one: Assignment) -> None:
        """Of eleven stages of sampled ones one diverges."""
        name, planted = one.trial_id, random.Random(f"{one.trial_id} {one.until}").randrange(11)
        stages = dict(self.results[name].stages) if name in self.results else {}
        result = Result("finished", (float(planted),), stages)
        if planted == 0 and one.origin == "sampler":
            result = Result("failed", (), stages, "NonFiniteError")
        elif one.until < 1:
            result = Result("pruned", (), {**stages, one.until: float(planted)})
        self.results[name] = result
        made.end(name, result)


def two_by_two(folder: Path) -> Space:
    ranges = (
        "method.lambda = { choices = [0.3, 0.7] }\nmethod.num_positives = { choices = [1, 2] }"
    )
    return lambda_space(folder, 0.3, ranges=ranges, fixed="method.num_positives = 1")


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_grid_comes_first_and_exactly_once(tmp_path: Path, sampler: SamplerName) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, 0.1, ranges=LAMBDA)
    given = drive(proposals(space, sampled=5, sampler=sampler, seeds=(0, 1)), judge)
    grid = [(knob(a.config, "method.lambda"), a.config.seed) for a in given[:6]]
    assert grid == [(0.3, 0), (0.3, 1), (0.7, 0), (0.7, 1), (0.1, 0), (0.1, 1)]
    assert [a.origin for a in given] == ["grid"] * 6 + ["sampler"] * 10
    assert len({a.trial_id for a in given}) == 16
    assert len({a.configuration for a in given}) == 8


def test_what_takes_no_step_runs_once_and_competes_with_all_seeds(tmp_path: Path) -> None:
    grid = 'grid."method.name" = ["none", "scl"]'
    space = tiny_space(tmp_path, grid, ranges=LAMBDA)
    made = Trained(space).search(budget=9, seeds=(0, 1, 2))
    runs = [(a.config.method.name, a.config.seed) for a in made.assignments()]
    assert [run for run in runs if run[0] == "none"] == [("none", 0)]
    assert runs.count(("scl", 2)) >= 2, "the grid's, and that of the best sampled configuration"


def test_what_takes_no_step_takes_no_place_behind_the_first_stage(tmp_path: Path) -> None:
    """Finds its whole score beside scores of a sixteenth of a training."""
    ranges = 'method.name = { choices = ["none", "scl"] }\n' + LAMBDA
    space = tiny_space(tmp_path, 'grid."method.name" = ["scl"]', ranges=ranges)
    study = Trained(space)
    made = study.search(budget=9, seeds=(0, 1))
    assert made.stages is not None and made.finished
    methods = {a.trial_id: a.config.method.name for a in made.assignments()}
    counts = Counter(until for trial, until in study.given if methods[trial] == "scl")
    first, second, *_ = made.stages.sizes
    assert counts[1 / 16] == first - list(methods.values()).count("none") == first - 1
    assert counts[1 / 4] == second


def test_who_certainly_goes_on_runs_before_further_proposals(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA)
    made = proposals(space, sampled=8, scheduler="halving", shares=(0.25, 1.0))

    def handed(count: int) -> list[tuple[str, float]]:
        given = (made.next() for _ in range(count))
        return [(a.trial_id, a.until) for a in given if a is not None]

    (grid,), first = handed(1), handed(7)
    assert grid[1] == 1.0 and {until for _, until in first} == {0.25}
    assert made.pause_above(0.25) == float("-inf")
    for score, (name, _) in enumerate(first, 1):
        made.end(name, Result("pruned", (), {0.25: float(score)}))
    assert made.pause_above(0.25) == 6.0, "two go on"
    best, (last, until) = handed(2)
    assert best == (first[-1][0], 1.0)
    assert until == 0.25 and last not in {name for name, _ in first}
    assert handed(1) == [], "the last one decides who else goes on"
    made.requeue(best[0], "train")
    made.requeue(grid[0], "train")
    assert handed(3) == [grid, best]


@pytest.mark.parametrize(("scheduler", "values"), [("none", [25.0]), ("halving", [10.0])])
def test_one_number_is_told_of_each_configuration(
    tmp_path: Path, scheduler: SchedulerName, values: list[float]
) -> None:
    """The mean over all seeds where all have them, else the first stage's."""
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA)
    made = proposals(space, seeds=(0, 1, 2), sampled=1, scheduler=scheduler)
    first, second, third = (made.next() for _ in range(3))
    assert first and second and third
    made.end(third.trial_id, finished(40.0))
    assert sampler_trials(made) == []
    made.end(first.trial_id, finished(10.0))
    assert [t.values for t in sampler_trials(made)] == ([] if scheduler == "none" else [values])
    made.end(second.trial_id, finished(25.0))
    assert [t.values for t in sampler_trials(made)] == [values]


def test_the_score_of_the_first_stage_is_told_and_no_later_one(tmp_path: Path) -> None:
    """The grid has none."""
    made = proposals(
        lambda_space(tmp_path, 0.3, ranges=LAMBDA), sampled=1, scheduler="halving", shares=SHARES
    )
    ends = (finished(9.0), *(Result("pruned", (), {s: 50 + s}) for s in SHARES[:2]), finished(7.0))
    for end in ends:
        one = made.next()
        assert one is not None
        made.end(one.trial_id, end)
    assert [t.values for t in sampler_trials(made)] == [[50 + SHARES[0]]]
    assert made.finished


def test_trap_an_end_reported_twice_changes_nothing(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.3, ranges=LAMBDA), sampled=1)
    for _ in range(2):
        assignment = made.next()
        assert assignment is not None
        for end in (finished(5.0), finished(9.0), DIVERGED, LOST):
            made.end(assignment.trial_id, end)
    assert [t.values for t in sampler_trials(made)] == [[5.0], [5.0]]
    assert [one.mean((0,)) for one in made.configurations.values()] == [5.0, 5.0]
    assert made.finished


@pytest.mark.parametrize(
    ("sampler", "end"), [("tpe", finished(1.0)), ("tpe", DIVERGED), ("random", LOST)]
)
def test_a_finite_space_ends_and_says_so(
    tmp_path: Path, sampler: SamplerName, end: Result
) -> None:
    made = proposals(two_by_two(tmp_path), sampled=100, sampler=sampler, seeds=(0, 1))
    given = drive(made, lambda config: end)
    assert len({a.configuration for a in given}) == 4
    # A sampled configuration whose first seed fails has no second stage.
    assert len({a.trial_id for a in given}) == len(given) == (8 if end.values else 5)
    assert made.exhausted
    assert made.total == len(given)
    assert made.next() is None


def test_of_several_objectives_the_first_is_told(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA)
    made = proposals(space, sampled=3, objectives=2, seeds=(0, 1))
    drive(made, lambda config: finished(*(float(i + config.seed) for i in range(2))))
    assert [t.values for t in sampler_trials(made)] == [[0.5]] * 5
