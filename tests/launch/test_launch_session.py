"""A whole search by the local launcher, with real training on toy data and real files."""

import math
import statistics
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from launch_samples import (
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
from optuna.trial import TrialState
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import StudyError
from tune_sentcl.space import Space
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.writing.driver import StudyDriver
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.planning.plan import make_plan
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.worker import Attempt, WorkerSettings

DIVERGING = "grid.optimizer.lr = [1e-3, 1e30]\n"


def half_diverging(folder: Path, ranges: str = "") -> Space:
    """Two configurations: one that trains, and one whose rate blows every weight up."""
    return tiny_space(folder, DIVERGING, ranges=ranges, trials=2)


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
    outcome = run_here("smoke", tmp_path, trials=2, seeds=(0, 1))
    assert (outcome.trials, outcome.ran, outcome.failures) == (8, 8, 0)
    found = rows(tmp_path)
    assert len({row["trial_id"] for row in found}) == len(found) == 8
    assert {row["status"] for row in found} == {"finished"}
    assert [row["origin"] for row in found].count("grid") == 4
    assert {row["seed"] for row in found} == {0, 1}
    assert {row["attempt"] for row in found} == {1}
    assert all(row["error_type"] is None and row["steps"] == 12 for row in found)
    scored = numbers(tmp_path)
    for trial_id, objective in objectives(tmp_path).items():
        assert scored[trial_id, "STS-B", "dev", None, "spearman", None] == objective
    assert {key[0] for key in scored} == {row["trial_id"] for row in found}
    assert temporary_files(tmp_path) == []


def test_a_finished_study_runs_nothing_again(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    run_here(space, study, trials=2, seeds=(0, 1))
    before = snapshot(study)
    for _ in range(2):
        outcome = run_here(space, study, trials=2, seeds=(0, 1))
        assert (outcome.trials, outcome.ran) == (6, 0)
        assert snapshot(study) == before


def test_the_mirror_holds_the_mean_over_seeds(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    run_here(space, study, trials=1, seeds=(0, 1))
    by_configuration: dict[str, list[float]] = {}
    for row in rows(study):
        by_configuration.setdefault(row["configuration"], []).append(row["objective"])
    means = sorted(statistics.fmean(values) for values in by_configuration.values())
    told = mirrored(study)
    assert {t.state for t in told} == {TrialState.COMPLETE}
    assert sorted(t.value or math.nan for t in told) == pytest.approx(means)
    assert all("method.lambda" in t.params for t in told)


def test_trap_nan_is_a_failure_with_its_text_and_never_0(tmp_path: Path) -> None:
    ranges = "optimizer.lr = { low = 1e-4, high = 1e30, log = true }"
    outcome = run_here(half_diverging(tmp_path / "space", ranges), tmp_path / "study")
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


def test_a_failed_trial_is_run_again_once_a_repetition(tmp_path: Path) -> None:
    space = half_diverging(tmp_path / "space")
    for attempt in (1, 2, 3):
        outcome = run_here(space, tmp_path / "study", seeds=(0, 1))
        assert (outcome.ran, outcome.failures) == (4 if attempt == 1 else 2, 2)
        found = rows(tmp_path / "study")
        assert len({row["trial_id"] for row in found}) == len(found) == 4
        attempts = {row["status"]: row["attempt"] for row in found}
        assert attempts == {"finished": 1, "failed": attempt}
    assert len(mirrored(tmp_path / "study")) == 2, "a grid that no range holds is shown too"


def test_a_failed_trial_that_can_run_now_replaces_its_row(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study, StandIn(study, lambda config: "fail"))
    failed = rows(study)
    assert [(row["status"], row["attempt"]) for row in failed] == [("failed", 1)]
    assert run_here(space, study).ran == 1
    (again,) = rows(study)
    assert again["trial_id"] == failed[0]["trial_id"]
    assert (again["status"], again["attempt"], again["error_type"]) == ("finished", 2, None)
    assert again["objective"] is not None


def test_nothing_of_a_trial_is_left_to_do_after_its_last_report(tmp_path: Path) -> None:
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
            assert (study / "curves" / f"{trial_id}.parquet").is_file()
            if progress.final:
                break
            assert not (study / "scores" / f"{trial_id}.parquet").exists()
    assert [(p.step, p.final) for p in points] == [(1, False), (2, True)]
    assert (study / "scores" / f"{trial_id}.parquet").is_file()
    assert (study / "checkpoints" / trial_id / "model.safetensors").is_file()
    assert len(points[-1].scores) > 0


def test_a_trial_killed_between_its_scores_and_its_row_appears_once(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    StudyDriver.open(study, space=space, command=["test"]).close()
    loader = InputLoader(None)
    assignment = assigned(space.configurations[0], loader)
    for _ in Attempt(assignment, loader, WorkerSettings(str(study), True, 1, 0.0)).points():
        pass
    assert len(list((study / "scores").glob("*.parquet"))) == 1
    assert (rows(study), numbers(study)) == ([], {})
    assert run_here(space, study).ran == 2
    assert statuses(study) == ["finished"] * 2
    whole = tmp_path / "whole"
    run_here(space, whole)
    assert numbers(study) == numbers(whole)


@pytest.mark.parametrize("keep", [0, 1, 2, 9])
def test_the_best_checkpoints_are_kept_and_no_others(tmp_path: Path, keep: int) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.5, 0.7, 0.9)
    study = tmp_path / "study"
    run_here(space, study, keep=keep)
    values = objectives(study)
    assert len(set(values.values())) == 5
    best = sorted(values, key=lambda name: values[name], reverse=True)[:keep]
    assert checkpoints(study) == set(best)


def test_the_best_are_kept_over_several_runs(tmp_path: Path) -> None:
    study = tmp_path / "study"
    for lambdas in ((0.1, 0.3), (0.1, 0.3, 0.5, 0.7), (0.1, 0.3, 0.5, 0.7, 0.9)):
        run_here(lambda_space(tmp_path / "space", *lambdas), study, keep=2)
        values = objectives(study)
        best = sorted(values, key=lambda name: values[name], reverse=True)[:2]
        assert checkpoints(study) == set(best)


def test_more_seeds_run_only_the_missing_ones(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    assert run_here(space, study, trials=1, seeds=(0,)).ran == 2
    before = {row["trial_id"]: row for row in rows(study)}
    outcome = run_here(space, study, trials=1, seeds=(0, 1, 2))
    assert (outcome.trials, outcome.ran) == (6, 4)
    after = {row["trial_id"]: row for row in rows(study)}
    assert len(after) == 6
    assert {name: after[name] for name in before} == before
    for configuration in {row["configuration"] for row in after.values()}:
        seeds = [r["seed"] for r in after.values() if r["configuration"] == configuration]
        assert sorted(seeds) == [0, 1, 2]


def test_more_trials_add_only_the_difference(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    assert run_here(space, study, trials=2).ran == 3
    before = {row["trial_id"]: row for row in rows(study)}
    assert run_here(space, study, trials=5).ran == 3
    after = {row["trial_id"]: row for row in rows(study)}
    assert len(after) == 6
    assert {name: after[name] for name in before} == before
    assert len({row["method.lambda"] for row in after.values()}) == 6
    assert run_here(space, study, trials=3).ran == 0


def test_a_larger_grid_runs_only_what_is_missing(tmp_path: Path) -> None:
    study = tmp_path / "study"
    assert run_here(lambda_space(tmp_path / "space", 0.3, 0.7), study).ran == 2
    assert run_here(lambda_space(tmp_path / "space", 0.1, 0.3, 0.7, 0.9), study).ran == 2
    assert run_here(lambda_space(tmp_path / "space", 0.7), study).ran == 0
    assert len(rows(study)) == 4


def test_several_objectives_are_told_as_vectors(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    asked = ("STS-B:spearman", "SICK-R:pearson:dev", "STS12:spearman:test")
    run_here(space, study, trials=2, objectives=asked, allow_test_objective=True)
    scored = numbers(study)
    wanted = sorted(
        [
            scored[row["trial_id"], "STS-B", "dev", None, "spearman", None],
            scored[row["trial_id"], "SICK-R", "dev", None, "pearson", None],
            scored[row["trial_id"], "STS12", "test", None, "spearman", "all"],
        ]
        for row in rows(study)
    )
    assert sorted(t.values or [] for t in mirrored(study)) == wanted
    assert sorted(row["objective"] for row in rows(study)) == [vector[0] for vector in wanted]


def test_another_objective_runs_nothing_again_where_it_was_measured(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_here(space, study)
    assert run_here(space, study, objectives=("SICK-R:spearman",)).ran == 0


def test_checkpoints_are_ranked_by_the_objective_of_the_present_run(tmp_path: Path) -> None:
    """Numbers of two objectives do not compare."""
    grids, study = tmp_path / "space", tmp_path / "study"
    run_here(lambda_space(grids, 0.1, 0.3), study, keep=2)
    asked = ("STS12:spearman:test",)
    run_here(
        lambda_space(grids, 0.1, 0.3, 0.9),
        study,
        keep=2,
        objectives=asked,
        allow_test_objective=True,
    )
    name = ("STS12", "test", None, "spearman", "all")
    values = {key[0]: value for key, value in numbers(study).items() if key[1:] == name}
    assert len(values) == 3
    assert checkpoints(study) == set(sorted(values, key=lambda n: values[n], reverse=True)[:2])


def test_a_planned_trial_is_the_one_that_runs(tmp_path: Path) -> None:
    planned = make_plan("smoke", None, None, {}, (0,), SearchOptions(launcher="local"))
    run_here("smoke", tmp_path)
    assert {row["status"] for row in planned.rows} == {"to run"}
    assert {row["trial_id"] for row in planned.rows} == {row["trial_id"] for row in rows(tmp_path)}


def test_the_config_in_a_row_gives_the_same_trial_again(tmp_path: Path) -> None:
    run_here("smoke", tmp_path, trials=1)
    for row in rows(tmp_path):
        config = TrialConfig.model_validate_json(row["config"])
        assert InputLoader(None).load(config).trial_id(config) == row["trial_id"]


def test_two_drivers_cannot_share_a_study(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3)
    with (
        StudyDriver.open(tmp_path / "study", space=space, command=["test"]),
        pytest.raises(StudyError, match="another driver"),
    ):
        run_here(space, tmp_path / "study")
    assert run_here(space, tmp_path / "study").ran == 1
