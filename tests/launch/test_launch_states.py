"""States of running trials: gone when a trial ends, taken up by whoever repeats the search."""

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from launch_samples import LAMBDA, lambda_space, numbers, rows, run_here
from processes import wait_until
from stand_in import Stopped

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Assignment
from tune_sentcl.launch import run_prepared, search
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.reading.study import Study
from tune_sentcl.trial import output as saving
from tune_sentcl.tuning.fresh_seeds import confirming
from tune_sentcl.tuning.planning.plan import make_plan
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, worker_settings

LONG = "optimizer.epochs = 96\nevaluation.every = 40"
DRIVER = """
import sys
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.launch import search
search(*sys.argv[1:], options=SearchOptions(launcher="local", save_every=0.0005))
"""


OFTEN = 0.0005
SHORT = "optimizer.epochs = 16\nevaluation.every = 8"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was slow once makes no trial wait long for its next state."""
    monkeypatch.setattr(saving, "_SHARE", 0.5)


@dataclass
class Interrupted:
    """A launcher that trains here, and is cut off in the midst of one sampled trial.

    Attributes:
        study: Where it lies.
        options: Of the search.
        sampled: How many sampled trials end before that one.
        points: Evaluation points of that trial that the driver hears of before.
        cut: The trial that was under way, and what it is.
    """

    study: Path
    options: SearchOptions
    sampled: int
    points: int = 0
    cut: dict[str, TrialConfig] = field(default_factory=dict)

    def __call__(self, session: Session) -> None:
        """Run what comes before, and begin that one."""
        while not session.finished:
            assignment = session.next()
            assert assignment is not None
            self.sampled -= assignment.origin == "sampler"
            session.started(assignment.trial_id)
            attempt = Attempt(
                assignment, session.loader, worker_settings(str(self.study), self.options, 0.0)
            )
            with closing(attempt.points()) as points:
                for number, progress in enumerate(points):
                    there = assignment.trial_id in Study.read(self.study).states()
                    if self.sampled < 0 and there and number >= self.points:
                        self.cut[assignment.trial_id] = assignment.config
                        self.end(session, assignment)
                        break
                    session.progress(assignment.trial_id, progress)

    def end(self, session: Session, assignment: Assignment) -> None:
        """The driver is gone."""
        raise Stopped


def interrupted(space: Space, study: Path, sampled: int, **asked: Any) -> Interrupted:
    """Cut a search off while a sampled trial runs that has left a state."""
    seeds, points = asked.pop("seeds", (0,)), asked.pop("points", 0)
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, save_every=OFTEN, **asked)
    launcher = Interrupted(study, options, sampled, points)
    with pytest.raises(Stopped):
        run_prepared(prepare(space, None, seeds, options), str(study), launcher)
    assert Study.read(study).states() == launcher.cut.keys()
    return launcher


def curves(study: Path) -> list[dict[str, Any]]:
    found = Study.read(study).curves().to_pylist()
    return sorted(found, key=lambda row: (row["trial_id"], row["step"], row["metric"]))


def test_a_state_is_gone_when_its_trial_has_ended(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3, fixed=SHORT), tmp_path / "study"
    run_here(space, study, save_every=OFTEN)
    (row,) = rows(study)
    assert row["status"] == "finished"
    assert 0 < row["saving_seconds"] < row["wall_seconds"]
    assert not any((study / "states").iterdir())
    run_here(space, tmp_path / "never", save_every=0)
    (row,) = rows(tmp_path / "never")
    assert row["saving_seconds"] == 0
    assert not (tmp_path / "never/states").exists()
    assert numbers(study) == numbers(tmp_path / "never")


def test_whoever_repeats_a_killed_command_goes_on_from_the_state(tmp_path: Path) -> None:
    lambda_space(tmp_path / "space", 0.3, fixed=LONG)
    (file,) = (tmp_path / "space").glob("*.toml")
    study, whole = tmp_path / "study", tmp_path / "whole"
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(file), str(study)]) as driver:
        wait_until(
            lambda: driver.poll() is not None or any((study / "states").glob("[0-9a-f]*")),
            "the first state",
        )
        driver.kill()
    assert not list((study / "trials").iterdir()), "it has not ended"
    run_here(load_space(file), study, save_every=OFTEN)
    run_here(load_space(file), whole)
    (row,) = rows(study)
    assert row["notes"].startswith("went on from step ")
    assert numbers(study) == numbers(whole)
    assert curves(study) == curves(whole)
    assert not any((study / "states").iterdir())


@pytest.mark.parametrize(
    ("sampler", "sampled", "seeds"),
    [("random", 1, (0,)), ("tpe", 1, (0,)), ("tpe", 0, (0, 1))],
)
def test_a_sampled_trial_goes_on_when_the_command_is_repeated(
    tmp_path: Path, sampler: str, sampled: int, seeds: tuple[int, ...]
) -> None:
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA, fixed=SHORT)
    study, asked = tmp_path / "study", {"trials": 2, "sampler": sampler, "seeds": seeds}
    ((name, config),) = interrupted(space, study, sampled, **asked).cut.items()
    planned = make_plan(
        space.source,
        str(study),
        data=None,
        overrides={},
        seeds=seeds,
        options=SearchOptions(trials=2),
    )
    assert name in {row["trial_id"] for row in planned.rows}
    outcome = run_here(space, study, save_every=OFTEN, **asked)
    assert outcome.trials == len(rows(study)) == 3 * len(seeds)
    assert {row["status"] for row in rows(study)} == {"finished"}
    assert len({row["configuration"] for row in rows(study)}) == 3
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert row["origin"] == "sampler"
    assert TrialConfig.model_validate_json(row["config"]) == config
    assert row["notes"].startswith("went on from step ")
    assert not any((study / "states").iterdir())


class Lost(Interrupted):
    """A launcher whose workers are lost in the midst of the grid's first trial, every time."""

    def end(self, session: Session, assignment: Assignment) -> None:
        """The worker is gone; the driver is not."""
        session.lost(assignment.trial_id, Failure("WorkerLostError", "gone", {}))


def test_a_trial_that_spent_its_tries_goes_on_in_a_repetition(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3, fixed=SHORT)
    study = tmp_path / "study"
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, save_every=OFTEN, retries=1)
    (known,) = prepare(space, None, (0,), options).proposals.assignments()
    name = known.trial_id
    for attempt in (1, 2):
        lost = Lost(study, options, -1)
        outcome = run_prepared(prepare(space, None, (0,), options), str(study), lost)
        assert lost.cut.keys() == {name}
        (row,) = rows(study)
        assert (outcome.failures, row["attempt"]) == (1, attempt)
        assert (row["status"], row["error_type"]) == ("failed", "WorkerLostError")
        assert Study.read(study).states() == {name}
    run_here(space, study, seeds=(1,), save_every=OFTEN)
    assert Study.read(study).states() == {name}, "another command lets it lie"
    run_here(space, study, save_every=OFTEN)
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert (row["status"], row["attempt"]) == ("finished", 3)
    assert row["notes"].startswith("went on from step ")
    assert not any((study / "states").iterdir())


def test_a_state_that_nobody_asks_for_goes_with_the_end_of_a_search(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA, fixed=SHORT)
    study = tmp_path / "study"
    cut = interrupted(space, study, 0, trials=1).cut
    elsewhere = space.with_overrides({"optimizer.lr": 2e-3})
    interrupted(elsewhere, tmp_path / "other", 0, trials=1)
    for moved in (tmp_path / "other" / "states").iterdir():
        moved.rename(study / "states" / moved.name)
    held = Study.read(study).states()
    assert run_here(space, study, trials=1, max_time=1e-9).ended_by
    assert Study.read(study).states() == held, "that search was not complete"
    run_here(space, study, trials=1, save_every=0)
    assert {row["trial_id"] for row in rows(study)} > cut.keys()
    assert len(rows(study)) == 2
    assert not any((study / "states").iterdir())


def test_a_state_that_does_not_say_whose_it_is_stops_no_search(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA, fixed=SHORT)
    study = tmp_path / "study"
    interrupted(space, study, 0, trials=1)
    (file,) = (study / "states").glob("*/state.json")
    file.write_text('{"made_for": "[3]"}')
    assert run_here(space, study, trials=1).trials == len(rows(study)) == 2
    assert not any((study / "states").iterdir())


_RATES = """
name = "rates"
trials = {}
[fixed]
encoder.checkpoint = "toy"
data.source = "toy"
data.limit = 192
optimizer.batch_size = 32
optimizer.epochs = 8
evaluation.every = 6
method.name = "scl"
method.lambda = 0.3
[[block]]
grid.optimizer.lr = [{}]
"""


def _rates(folder: Path, *rates: str) -> Space:
    file = folder / "rates.toml"
    file.write_text(_RATES.format(len(rates), ", ".join(rates)))
    return load_space(file)


@pytest.mark.parametrize(("most", "status"), [(384, "finished"), (None, "pruned")])
def test_trap_a_trial_that_goes_on_is_not_stopped_where_it_was_let_go_on(
    tmp_path: Path, most: int | None, status: str
) -> None:
    """Better ones have come meanwhile; only a rung that is new to it may stop it."""
    study, slow = tmp_path / "study", "1e-9"
    asked: Any = {"scheduler": "asha", "grace": 192, "reduction": 2, "max_rows": most}
    (name,) = interrupted(_rates(tmp_path, slow), study, -1, points=3, **asked).cut
    (file,) = (study / "states").glob("*/state.json")
    step = json.loads(file.read_text())["number"]
    assert step >= 12, "behind the rungs at 192 and 384 rows"
    run_here(_rates(tmp_path, "1e-3", "2e-3", slow), study, save_every=OFTEN, **asked)
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert row["notes"].startswith(f"went on from step {step} ")
    assert row["status"] == status
    assert row["steps"] > step
    points = [point["step"] for point in curves(study) if point["trial_id"] == name]
    assert min(points) <= 6 and max(points) > step


def test_trap_a_confirming_trial_goes_on_where_the_command_is_repeated(tmp_path: Path) -> None:
    """The search before it is complete, and lets its state lie."""
    space, study = lambda_space(tmp_path / "space", 0.3, fixed=SHORT), tmp_path / "study"
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, save_every=OFTEN, confirm=1)
    whole = prepare(space, None, (0,), options)
    run_prepared(whole, str(study))
    again = confirming(whole, str(study))
    assert again is not None
    launcher = Interrupted(study, options, -1)
    with pytest.raises(Stopped):
        run_prepared(again, str(study), launcher)
    (name,) = launcher.cut
    search(space, study, seeds=(0,), options=options)
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert (row["status"], row["origin"]) == ("finished", "confirm")
    assert row["notes"].startswith("went on from step ")
    assert not any((study / "states").iterdir())
