"""Searches by the local launcher over one study: what trials leave there, and what is run again.

One search trains; the others are of trials that train nothing.
"""

import math
import statistics
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from search_samples import (
    LAMBDA,
    assigned,
    checkpoints,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    rows,
    run_here,
    run_planted,
    statuses,
    temporary_files,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import StudyError
from tune_sentcl.space import load_space
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.plan import make_plan
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.worker import Attempt, WorkerSettings


def snapshot(study: Path) -> dict[str, Any]:
    """Everything that a repetition of a finished search must not change."""
    kept = Study.read(study)
    tables = (kept.trials(), kept.scores(), kept.curves())
    return {
        "tables": [table.to_pylist() for table in tables],
        "checkpoints": checkpoints(study),
        "told": sorted((t.state, t.values, sorted(t.params.items())) for t in mirrored(study)),
    }


def test_each_trial_commits_one_row_with_its_scores(tmp_path: Path) -> None:
    """Real training, of a shipped space."""
    planned = make_plan(load_space("smoke"), None, None, (0,), SearchOptions(launcher="local"))
    outcome = run_here("smoke", tmp_path, trials=1, seeds=(0, 1))
    assert (outcome.trials, outcome.ran, outcome.failures) == (6, 6, 0)
    found = rows(tmp_path)
    assert len({row["trial_id"] for row in found}) == len(found) == 6
    assert {row["status"] for row in planned.rows()} == {"to run"}
    assert {row["trial_id"] for row in planned.rows()} == {
        row["trial_id"] for row in found if row["origin"] == "grid" and row["seed"] == 0
    }
    assert {row["status"] for row in found} == {"finished"}
    assert [row["origin"] for row in found].count("grid") == 4
    assert {row["seed"] for row in found} == {0, 1}
    assert {row["attempt"] for row in found} == {1}
    assert all(row["error_type"] is None and row["steps"] == 12 for row in found)
    scored, values = numbers(tmp_path), objectives(tmp_path)
    for trial_id, objective in values.items():
        assert scored[trial_id, "STS-B", "dev", None, "spearman", None] == objective
    assert {key[0] for key in scored} == {row["trial_id"] for row in found}
    assert checkpoints(tmp_path) == {max(values, key=lambda name: values[name])}
    assert temporary_files(tmp_path) == []
    for row in found:  # the config in a row gives the same trial again
        config = TrialConfig.model_validate_json(row["config"])
        assert InputLoader(None).load(config).trial_id(config) == row["trial_id"]


def test_a_finished_study_runs_nothing_again_and_the_mirror_holds_means_over_seeds(
    tmp_path: Path,
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    run_planted(space, study, trials=2, seeds=(0, 1))
    before = snapshot(study)
    for _ in range(2):
        outcome, _ = run_planted(space, study, trials=2, seeds=(0, 1))
        assert (outcome.trials, outcome.ran) == (6, 0)
        assert snapshot(study) == before
    by_configuration: dict[str, list[float]] = {}
    for row in rows(study):
        by_configuration.setdefault(row["configuration"], []).append(row["objective"])
    means = sorted(statistics.fmean(values) for values in by_configuration.values())
    told = mirrored(study)
    assert {t.state for t in told} == {TrialState.COMPLETE}
    assert sorted(t.value or math.nan for t in told) == pytest.approx(means)
    assert all("method.lambda" in t.params for t in told)


def test_trap_nan_is_a_failure_with_its_text_and_never_0(tmp_path: Path) -> None:
    """Real training: a rate blows every weight up."""
    ranges = "optimizer.lr = { low = 1e-4, high = 1e30, log = true }"
    grid = "grid.optimizer.lr = [1e-3, 1e30]\n"
    space = tiny_space(tmp_path / "space", grid, ranges=ranges)
    outcome = run_here(space, tmp_path / "study")
    assert (outcome.ran, outcome.failures) == (2, 1)
    (failed,) = [row for row in rows(tmp_path / "study") if row["status"] == "failed"]
    assert failed["optimizer.lr"] == 1e30
    assert failed["error_type"] == "NonFiniteError"
    assert failed["error_text"]
    assert failed["objective"] is None
    assert failed["trial_id"] not in {key[0] for key in numbers(tmp_path / "study")}
    states = {t.params["optimizer.lr"]: (t.state, t.values) for t in mirrored(tmp_path / "study")}
    assert states[1e30] == (TrialState.FAIL, None)
    assert states[1e-3][0] == TrialState.COMPLETE
    assert failed["trial_id"] not in checkpoints(tmp_path / "study")


def test_a_failed_trial_is_run_again_once_a_repetition_until_it_can_run(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"

    def fate(config: TrialConfig) -> Any:
        return "fail" if config.dotted()["method.lambda"] == 0.7 else "finish"

    for attempt in (1, 2, 3):
        outcome, _ = run_planted(space, study, StandIn(study, fate), seeds=(0, 1))
        assert (outcome.ran, outcome.failures) == (4 if attempt == 1 else 2, 2)
        found = rows(study)
        assert len({row["trial_id"] for row in found}) == len(found) == 4
        attempts = {row["status"]: row["attempt"] for row in found}
        assert attempts == {"finished": 1, "failed": attempt}
    assert len(mirrored(study)) == 2, "a grid that no range holds is shown too"
    failed = {row["trial_id"] for row in rows(study) if row["status"] == "failed"}
    assert run_planted(space, study, seeds=(0, 1))[0].ran == 2
    again = [row for row in rows(study) if row["trial_id"] in failed]
    assert {(r["status"], r["attempt"], r["error_type"]) for r in again} == {("finished", 4, None)}
    assert all(row["objective"] is not None for row in again)


def test_nothing_of_a_trial_is_left_to_do_after_its_last_report(tmp_path: Path) -> None:
    """Real training. Weights without a row, as of a killed driver, count as nothing."""
    space = lambda_space(tmp_path / "space", 0.3, fixed="evaluation.every = 1")
    study = tmp_path / "study"
    loader = InputLoader(None)
    config = space.configurations[0]
    trial_id = loader.load(config).trial_id(config)
    StudyDriver.open(study, space=space, command=["test"]).close()
    points = []
    settings = WorkerSettings(str(study), True, 1, 0.0)
    with closing(Attempt(assigned(config, loader), loader, settings).points()) as trial:
        for progress in trial:
            points.append(progress)
            if progress.final:
                break
            assert not (study / "checkpoints").exists()
    assert [(p.step, p.final) for p in points] == [(1, False), (2, True)]
    (left,) = (study / "checkpoints").iterdir()
    assert (left / "model.safetensors").is_file()
    assert (rows(study), Study.read(study).checkpoints()) == ([], set())
    assert run_planted(space, study)[0].ran == 1
    assert statuses(study) == ["finished"]
    assert {key[0] for key in numbers(study)} == {trial_id}
    assert len(points[-1].scores) > 0


def test_two_drivers_cannot_share_a_study(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3)
    with (
        StudyDriver.open(tmp_path / "study", space=space, command=["test"]),
        pytest.raises(StudyError, match="another driver"),
    ):
        run_planted(space, tmp_path / "study")
    assert run_planted(space, tmp_path / "study")[0].ran == 1
