"""Which trial comes next, and what the sampler is told; no training, the results are planted."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted_spaces import let_toys_have_all_stages, sampler_trials
from search_samples import (
    LAMBDA,
    drive,
    finished,
    knob,
    lambda_space,
    queue_of,
    run_planted,
    tiny_space,
)

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Assignment, Result
from tune_sentcl.space import Space
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.tuning import sampler as sampling
from tune_sentcl.tuning import stages
from tune_sentcl.tuning.options import SamplerName, SchedulerName
from tune_sentcl.tuning.queue import Queue

DIVERGED, LOST = (Result("failed", error_type=e) for e in ("NonFiniteError", "WorkerLostError"))
SHARES = (1 / 16, 1 / 4, 1.0)


def judge(config: TrialConfig) -> Result:
    """Plants the quality -(lambda - 0.9)^2; SBERT is lambda 0."""
    return finished(80 - 100 * (config.dotted().get("method.lambda", 0.0) - 0.9) ** 2)


@dataclass
class Trained:
    """A study in memory: what was handed out, by trial and share, and how it ended.

    Attributes:
        loses: Whether a few trials lose their worker.
        record: The halvings, as the study holds them whenever a trial is handed out.
    """

    space: Space
    loses: bool = False
    given: list[tuple[str, float]] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    sampled: dict[str, TrialConfig] = field(default_factory=dict)
    record: SearchRecord | None = None

    def search(
        self, *, workers: int = 1, order: int = 0, most: int = 10**9, **options: Any
    ) -> Queue:
        """A search by so many workers, whose trials end in any order, up to `most` ends."""
        usual = {"sampler": "random", "scheduler": "halving", "shares": SHARES}
        adopted = {name: one for name, one in self.sampled.items() if name in self.results}
        study = {"adopted": adopted, "results": self.results, "record": self.record}
        made = queue_of(self.space, **{**usual, **study, **options})
        running: list[Assignment] = []
        generator = random.Random(order)
        while not made.finished:
            assignment = made.next() if len(running) < workers else None
            if assignment is None:
                assert running, "nothing runs, so nothing can be waited for"
                if not most:
                    break
                most -= 1
                self.end(made, running.pop(generator.randrange(len(running))))
                continue
            self.record = made.record
            running.append(assignment)
            self.given.append((assignment.trial_id, assignment.until))
            if assignment.origin == "sampler":
                config = assignment.config.model_copy(update={"seed": 0})
                self.sampled.setdefault(assignment.configuration, config)
        return made

    def end(self, made: Queue, one: Assignment) -> None:
        """Of eleven stages of sampled ones one diverges, and one in a hundred may be lost."""
        name, planted = one.trial_id, random.Random(f"{one.trial_id} {one.until}").randrange(1100)
        stages = dict(self.results[name].stages) if name in self.results else {}
        score = float(planted % 11)
        result = Result("finished", (score,), stages)
        if score == 0 and one.origin == "sampler":
            result = Result("failed", (), stages, "NonFiniteError")
        elif self.loses and planted < 11 and one.origin == "sampler":
            result = LOST
        elif one.until < 1:
            result = Result("pruned", (), {**stages, one.until: score})
        self.results[name] = result
        made.end(name, result)

    def runs(self) -> set[tuple[str, float]]:
        return set(self.given)


@pytest.fixture
def small_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let halves of four configurations be large enough, and TPE begin with two."""
    monkeypatch.setattr(stages, "LEAST_HALF", 4)
    monkeypatch.setattr(sampling, "LEAST_TOLD", 2)


# A list here replaces the profile's, which says that a busy machine may draw slowly.
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
ASKED: dict[str, Any] = {"budget": 6.0, "seeds": (0, 1, 2), "sampler": "tpe"}


@settings(max_examples=12, suppress_health_check=UNCHECKED)
@given(
    workers=st.integers(1, 9),
    order=st.integers(0, 99),
    deaths=st.lists(st.integers(0, 60), max_size=4),
)
def test_workers_order_and_deaths_change_no_configuration_and_no_stage(
    small_halves: None,
    tmp_path_factory: pytest.TempPathFactory,
    workers: int,
    order: int,
    deaths: list[int],
) -> None:
    """A second half that is told what has arrived so far, or that is drawn anew, would differ."""
    space = lambda_space(tmp_path_factory.mktemp("space"), 0.3, ranges=LAMBDA)
    alone, other = Trained(space, loses=True), Trained(space, loses=True)
    alone.search(**ASKED)
    for most in deaths:
        other.search(**ASKED, workers=workers, order=order, most=most)
    other.search(**ASKED, workers=workers, order=order)
    alone.search(**ASKED)  # what was lost runs once a command
    assert other.record == alone.record and alone.record is not None
    assert len(alone.record.halvings[0].sampled) == 2 and other.runs() == alone.runs()


def test_the_second_half_is_told_a_rank_of_each_configuration_of_the_first(
    small_halves: None, tmp_path: Path
) -> None:
    """And nothing of the grid, of later stages, and of what was lost."""
    study = Trained(lambda_space(tmp_path, 0.3, ranges=LAMBDA), loses=True)
    made = study.search(**{**ASKED, "budget": 12.0})
    first, _ = made.record.halvings[0].sampled
    told = {t.params["method.lambda"]: t.values[0] for t in sampler_trials(made)}
    by_lambda = {knob(c, "method.lambda"): name for name, c in study.sampled.items()}
    ends = {}
    for params in first:
        configuration = made.configurations[by_lambda[params["method.lambda"]]]
        result = configuration.results[0]
        reached = [share for share in SHARES[:2] if share in result.stages]
        is_lost = result.status == "failed" and result.error_type == "WorkerLostError"
        if result.status == "failed" and len(reached) < 2 and not is_lost:
            assert told[params["method.lambda"]] == -1
        elif not (is_lost and len(reached) < 2):
            end = (len(reached), result.stages[reached[-1]], configuration.name)
            ends[params["method.lambda"]] = end
    in_order = sorted(ends, key=ends.__getitem__)
    assert {key: told[key] for key in in_order} == {k: n for n, k in enumerate(in_order)}
    assert told.keys() <= {params["method.lambda"] for params in first} and len(in_order) > 3


def test_the_best_of_older_studies_run_whole_and_compete_for_seeds(
    small_halves: None, tmp_path: Path
) -> None:
    study = Trained(lambda_space(tmp_path, 0.3, ranges=LAMBDA))
    older = [{"method.lambda": value} for value in (0.81, 0.82, 0.83, 0.84)]
    made = study.search(**ASKED, given=older, whole=older[:3])
    assert made.record.whole == tuple(older[:3])
    assert made.record.halvings[0].sampled[0][0] == older[3]
    until: dict[float, list[tuple[int, float]]] = {}
    for trial_id, share in study.given:
        found = made.configurations.of_trial(trial_id)
        assert found is not None
        until.setdefault(found[0].values["method.lambda"], []).append((found[1], share))
    assert all(until[value][0] == (0, 1.0) for value in (0.81, 0.82, 0.83))
    assert made.stages is not None and made.stages.cost <= 6
    # A search that ends within its grid begins its first half alike when it goes on.
    again = Trained(study.space)
    again.search(**ASKED, given=older, whole=older[:3], most=1)
    assert again.record is not None and not again.record.halvings[0].sampled
    again.search(**ASKED, given=older, whole=older[:3])
    assert again.record == made.record


def test_seeds_that_are_added_later_are_charged(small_halves: None, tmp_path: Path) -> None:
    study = Trained(lambda_space(tmp_path, 0.3, ranges=LAMBDA))
    study.search(**{**ASKED, "seeds": (0,)})
    for budget, halvings in ((6.5, 1), (14.0, 2)):
        made = study.search(**{**ASKED, "budget": budget})
        assert made.stages is not None and len(made.record.halvings) == halvings
        assert made.stages.cost <= max(8.0, budget)


def test_what_a_later_command_does_not_change_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_toys_have_all_stages(monkeypatch)
    space, study = lambda_space(tmp_path, 0.3, ranges=LAMBDA), tmp_path / "study"
    run_planted(lambda_space(tmp_path / "old", 0.1, 0.6, ranges=LAMBDA), tmp_path / "other")
    asked: dict[str, Any] = {"budget": 8.0, "scheduler": "halving", "sampler": "random"}
    for more, said in (
        ({}, ""),
        (
            {"budget": 8.1},
            "no configuration is added, because a further budget of 0.1 pays for none",
        ),
        ({"seeds": (0, 1, 2)}, "because the stages take"),
        ({"learn_from": (str(tmp_path / "other"),)}, "--learn-from changes nothing"),
    ):
        run_planted(space, study, **{**asked, **more})
        err = capsys.readouterr().err
        assert said in err and ("no configuration is added" in err) == bool(said)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_grid_comes_first_and_exactly_once(tmp_path: Path, sampler: SamplerName) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, 0.1, ranges=LAMBDA)
    given = drive(queue_of(space, sampled=5, sampler=sampler, seeds=(0, 1)), judge)
    grid = [(knob(a.config, "method.lambda"), a.config.seed) for a in given[:6]]
    assert grid == [(0.3, 0), (0.3, 1), (0.7, 0), (0.7, 1), (0.1, 0), (0.1, 1)]
    assert [a.origin for a in given] == ["grid"] * 6 + ["sampler"] * 10
    assert len({a.trial_id for a in given}) == 16
    assert len({a.configuration for a in given}) == 8


def test_what_takes_no_step_takes_no_place_behind_the_first_stage(tmp_path: Path) -> None:
    """Finds its whole score beside scores of a sixteenth of a training."""
    ranges = 'method.name = { choices = ["none", "scl"] }\n' + LAMBDA
    space = tiny_space(tmp_path, 'grid."method.name" = ["scl"]', ranges=ranges)
    study = Trained(space)
    made = study.search(budget=9, seeds=(0, 1))
    assert made.stages is not None and made.finished
    methods = {a.trial_id: a.config.method.name for a in made.assignments()}
    counts = Counter(until for trial, until in study.given if methods[trial] == "scl")
    first, second, *_ = made.stages.halvings[0].sizes
    assert counts[1 / 16] == first - list(methods.values()).count("none") == first - 1
    assert counts[1 / 4] == second


@pytest.mark.parametrize(("scheduler", "values"), [("none", [25.0]), ("halving", [10.0])])
def test_one_number_is_told_of_each_configuration(
    tmp_path: Path, scheduler: SchedulerName, values: list[float]
) -> None:
    """The mean over all seeds where all have them, else the first stage's."""
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA)
    made = queue_of(space, seeds=(0, 1, 2), sampled=1, scheduler=scheduler)
    first, second, third = (made.next() for _ in range(3))
    assert first and second and third
    made.end(third.trial_id, finished(40.0))
    assert sampler_trials(made) == []
    made.end(first.trial_id, finished(10.0))
    assert [t.values for t in sampler_trials(made)] == ([] if scheduler == "none" else [values])
    made.end(second.trial_id, finished(25.0))
    assert [t.values for t in sampler_trials(made)] == [values]


def test_of_several_objectives_the_first_is_told(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA)
    made = queue_of(space, sampled=3, objectives=2, seeds=(0, 1))
    drive(made, lambda config: finished(*(float(i + config.seed) for i in range(2))))
    assert [t.values for t in sampler_trials(made)] == [[0.5]] * 5
