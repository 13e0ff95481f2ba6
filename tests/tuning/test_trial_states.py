"""States of running trials: gone when a trial ends, taken up by whoever repeats the search."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from search_samples import (
    LAMBDA,
    kill_with_a_state,
    lambda_space,
    numbers,
    rows,
    run_here,
    run_planted,
)
from stand_in import StandIn
from stops import Stopped

from tune_sentcl.config import TrialConfig
from tune_sentcl.launch import run_and_confirm, run_prepared
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.reading.study import Study
from tune_sentcl.trial import output as saving
from tune_sentcl.tuning.planning.plan import make_plan
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.sampler.sampling import SamplerName
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import confirmation_search
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, worker_settings

LONG = "optimizer.epochs = 96\nevaluation.every = 40"
SHORT = "optimizer.epochs = 4\nevaluation.every = 4"
OFTEN = 0.0005
CURVE = ((192, 1.0), (384, 2.0), (768, 3.0), (1536, 4.0))
DRIVER = """
import sys
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.launch import search
search(*sys.argv[1:], options=SearchOptions(launcher="local", save_every=0.0005))
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was slow once makes no trial wait long for its next state."""
    monkeypatch.setattr(saving, "_SHARE", 0.5)


def planted(study: Path, points: int | None = None, curve: Any = CURVE, **how: Any) -> StandIn:
    """A launcher that trains nothing; its trials write a state behind each point but the last."""
    return StandIn(study, at_once=1, saves=True, points=points, curve=lambda config: curve, **how)


def cut_off(space: Space, study: Path, points: int, **asked: Any) -> str:
    """Cut a search off behind so many points, within a trial; the trial's id."""
    with pytest.raises(Stopped):
        run_planted(space, study, planted(study, points), **asked)
    (name,) = Study.read(study).states()
    return name


def resumed(launcher: StandIn, name: str) -> int:
    """Behind how many points a trial began."""
    (behind,) = [
        left for what, begun, (_, left) in launcher.events if (what, begun) == ("begins", name)
    ]
    return behind


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


@pytest.mark.long
def test_whoever_repeats_a_killed_command_goes_on_from_the_state(tmp_path: Path) -> None:
    lambda_space(tmp_path / "space", 0.3, fixed=LONG)
    (file,) = (tmp_path / "space").glob("*.toml")
    study, whole = tmp_path / "study", tmp_path / "whole"
    kill_with_a_state(DRIVER, file, study)
    run_here(load_space(file), study, save_every=OFTEN)
    run_here(load_space(file), whole)
    (row,) = rows(study)
    assert row["notes"].startswith("continued from step ")
    assert numbers(study) == numbers(whole)
    assert curves(study) == curves(whole)
    assert not any((study / "states").iterdir())


class CutOff:
    """A launcher that trains here, and whose driver is gone when a sampled trial left a state."""

    def __init__(self, study: Path, options: SearchOptions) -> None:
        self.study, self.options = study, options
        self.cut: dict[str, TrialConfig] = {}

    def __call__(self, session: Session) -> None:
        """Run what comes before, and begin that one."""
        settings = worker_settings(str(self.study), self.options, 0.0)
        while (assignment := session.next()) is not None:
            session.started(assignment.trial_id)
            with closing(Attempt(assignment, session.loader, settings).points()) as points:
                for progress in points:
                    there = assignment.trial_id in Study.read(self.study).states()
                    if assignment.origin == "sampler" and there:
                        self.cut[assignment.trial_id] = assignment.config
                        raise Stopped
                    session.progress(assignment.trial_id, progress)


def test_a_sampled_trial_goes_on_when_the_command_is_repeated(tmp_path: Path) -> None:
    """Real training."""
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA, fixed=SHORT)
    study = tmp_path / "study"
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, save_every=OFTEN, trials=1)
    launcher = CutOff(study, options)
    with pytest.raises(Stopped):
        run_prepared(prepare(space, None, (0,), options), str(study), launcher)
    ((name, config),) = launcher.cut.items()
    assert Study.read(study).states() == {name}
    outcome = run_here(space, study, save_every=OFTEN, trials=1)
    assert outcome.trials == len(rows(study)) == 2
    assert {row["status"] for row in rows(study)} == {"finished"}
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert row["origin"] == "sampler"
    assert TrialConfig.model_validate_json(row["config"]) == config
    assert row["notes"].startswith("continued from step ")
    assert not any((study / "states").iterdir())


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_was_under_way_is_known_to_the_plan_and_to_the_sampler(
    tmp_path: Path, sampler: SamplerName
) -> None:
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA)
    study, asked = tmp_path / "study", {"trials": 2, "sampler": sampler, "seeds": (0, 1)}
    name = cut_off(space, study, 2 * len(CURVE) + 1, **asked)
    planned = make_plan(space, str(study), None, (0, 1), SearchOptions(trials=2, sampler=sampler))
    assert name in {row["trial_id"] for row in planned.rows}
    again = planted(study)
    run_planted(space, study, again, **asked)
    assert resumed(again, name) == 1
    assert len(rows(study)) == 6
    assert len({row["configuration"] for row in rows(study)}) == 3
    assert not any((study / "states").iterdir())


def test_a_trial_that_spent_its_tries_goes_on_in_a_repetition(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    for attempt in (1, 2):
        lost = planted(study, fate=lambda config: "lose", lost_as="WorkerLostError")
        outcome, _ = run_planted(space, study, lost, retries=0)
        (row,) = rows(study)
        assert (outcome.failures, row["attempt"]) == (1, attempt)
        assert (row["status"], row["error_type"]) == ("failed", "WorkerLostError")
        assert Study.read(study).states() == {row["trial_id"]}
    (name,) = Study.read(study).states()
    run_planted(space, study, planted(study), seeds=(1,))
    assert Study.read(study).states() == {name}, "another command lets it lie"
    again = planted(study)
    run_planted(space, study, again)
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert (row["status"], row["attempt"], resumed(again, name)) == ("finished", 3, 2)
    assert not any((study / "states").iterdir())


def test_a_state_that_no_trial_asks_for_goes_with_the_end_of_a_search(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    behind_grid = len(CURVE) + 1
    name = cut_off(space, study, behind_grid, trials=1, sampler="random")
    elsewhere = space.with_overrides({"optimizer.lr": 2e-3})
    cut_off(elsewhere, tmp_path / "other", behind_grid, trials=1, sampler="random")
    for moved in (tmp_path / "other" / "states").iterdir():
        moved.rename(study / "states" / moved.name)
    held = Study.read(study).states()
    asked: dict[str, Any] = {"trials": 1, "sampler": "random"}
    assert run_planted(space, study, planted(study), max_time=1e-9, **asked)[0].ended_by
    assert Study.read(study).states() == held, "that search was not complete"
    run_planted(space, study, planted(study), **asked)
    assert name in {row["trial_id"] for row in rows(study)}
    assert len(rows(study)) == 2
    assert not any((study / "states").iterdir())


def test_a_state_that_does_not_say_of_which_trial_it_is_stops_no_search(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    cut_off(space, study, len(CURVE) + 1, trials=1)
    (file,) = (study / "states").glob("*/state.json")
    file.write_text('{"made_for": "[3]"}')
    assert run_planted(space, study, StandIn(study), trials=1)[0].trials == len(rows(study)) == 2
    assert not any((study / "states").iterdir())


@pytest.mark.parametrize(("most", "status"), [(384, "finished"), (None, "pruned")])
def test_trap_a_trial_that_goes_on_is_not_stopped_where_it_was_let_go_on(
    tmp_path: Path, most: int | None, status: str
) -> None:
    """Better trials have come meanwhile; only a rung that is new to it may stop it."""
    study, fixed = tmp_path / "study", "evaluation.every = 1\noptimizer.epochs = 30"
    limits: Any = {"grace": 192, "reduction": 2, "max_rows": most}
    asked: Any = {"scheduler": "asha", "trials": 1, "sampler": "random", **limits}
    layout = {"ranges": "method.lambda = { choices = [0.3] }", "fixed": fixed}
    alone = lambda_space(tmp_path / "one", 0.5, **layout)
    name = cut_off(alone, study, len(CURVE) + 2, **asked)
    better = lambda_space(tmp_path / "space", 0.5, 0.1, 0.2, **layout)
    again = planted(study)
    again.curve = lambda config: [
        (seen, score + 9 * (config.dotted()["method.lambda"] < 0.3)) for seen, score in CURVE
    ]
    run_planted(better, study, again, **asked)
    assert [begun for begun, _ in again.handed][-1] == name
    assert resumed(again, name) == 2, "behind the rungs at 192 and 384 rows"
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert row["status"] == status
    points = {point["samples"] for point in curves(study) if point["trial_id"] == name}
    assert min(points) == 192 and max(points) > 384


def test_trap_a_confirming_trial_goes_on_where_the_command_is_repeated(tmp_path: Path) -> None:
    """The search before it is complete, and lets its state lie."""
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, confirm=1)
    whole = prepare(space, None, (0,), options)
    run_prepared(whole, str(study), planted(study))
    again = confirmation_search(whole, str(study))
    assert again is not None
    with pytest.raises(Stopped):
        run_prepared(again, str(study), planted(study, 1))
    (name,) = Study.read(study).states()
    launcher = planted(study)
    run_and_confirm(prepare(space, None, (0,), options), str(study), launcher)
    (row,) = [row for row in rows(study) if row["trial_id"] == name]
    assert (row["status"], row["origin"], resumed(launcher, name)) == ("finished", "confirm", 1)
    assert not any((study / "states").iterdir())
