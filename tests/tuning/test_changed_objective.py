"""What steers a search, over a study that another score or other data steered before."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from disk_samples import write_sts_root
from planted_spaces import told
from search_samples import (
    LAMBDA,
    add_scores,
    checkpoints,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    rows,
    run_here,
    run_planted,
)
from stand_in import StandIn, planted_scores
from typer.testing import CliRunner

from tune_sentcl.analysis import read_study
from tune_sentcl.analysis.summary import summaries
from tune_sentcl.cli import app
from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ObjectiveError, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import parse_objectives
from tune_sentcl.score import Measurement, Score
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions

MORE: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}
FOLDS: dict[str, Any] = {**MORE, "evaluation.protocols": ["cosine", "senteval-5fold"]}


def searched(study: Path) -> dict[str, Any]:
    """What study.json says of the last search."""
    found: dict[str, Any] = json.loads((study / "study.json").read_text())["search"]
    return found


def of_trial(study: Path, task: str, split: str, metric: str) -> dict[str, float]:
    """One score of each trial, looked up in the scores table."""
    wanted = (task, split, None, metric, None)
    return {key[0]: value for key, value in numbers(study).items() if key[1:] == wanted}


def test_an_objective_is_read_by_the_protocol_that_is_meant(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run_planted(space, study)
    measurements = [Measurement("toy", "STS-B", "test", "relatedness", s) for s in (1111, 1112)]
    truth: dict[str, tuple[Any, ...]] = {}
    for row in rows(study):
        config = TrialConfig.model_validate_json(row["config"])
        scores = [s for m in measurements for s in planted_scores(config, m)]
        add_scores(study, row["trial_id"], scores)
        dev = [s.value for s in scores if (s.metric, s.split) == ("pearson", "dev")]
        assert len(set(dev)) == 2
        mean = sum(value for value in dev if value is not None) / 2
        truth[row["trial_id"]] = (row["objective"], pytest.approx(mean))
    asked = ["STS-B:spearman:dev", "STS-B:pearson:dev:relatedness"]
    history = History.read(Study.read(study), parse_objectives(asked, allow_test=False))
    for name, expected in truth.items():
        assert history.values(name) == history.result(name).values == expected
    table = history.with_objectives(Study.read(study).trials())
    assert {r["trial_id"]: r["objective"] for r in table.to_pylist()} == objectives(study)


def test_a_study_has_one_kind_of_evaluation_data(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    run_planted(space, study)
    before = rows(study)
    asked = space.with_overrides({"evaluation.data": "root"})
    root = write_sts_root(tmp_path / "root")
    with pytest.raises(StudyError) as caught:
        run_planted(asked, study, data=root)
    said = "evaluation.data: root: the trials of this study were scored on toy data"
    assert str(caught.value).startswith(said) and "Choose another folder" in str(caught.value)
    assert rows(study) == before
    with pytest.raises(StudyError, match="was scored on toy evaluation data, and this search is"):
        run_planted(asked, tmp_path / "other", data=root, learn_from=(str(study),))
    assert not (tmp_path / "other").exists()


def test_an_end_in_this_run_counts_as_one_that_is_read(tmp_path: Path) -> None:
    """What the history notes as trials end is what it reads in the next run."""
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run_planted(space.with_overrides(FOLDS), study)
    asked = parse_objectives(
        ["MR:accuracy:dev:senteval-5fold", "SST2:accuracy:dev:senteval-5fold"], allow_test=False
    )
    read = History.read(Study.read(study), asked)
    noted = History(asked)
    by_trial: dict[str, list[Score]] = {}
    for row in Study.read(study).scores().to_pylist():
        by_trial.setdefault(row.pop("trial_id"), []).append(Score(**row))
    for name, scores in by_trial.items():
        noted.record_end(name, "finished", 1, scores)
        assert noted.values(name) == read.values(name)
        assert None not in read.values(name)


def test_another_objective_is_what_rows_record_tables_and_sampler_speak_of(
    tmp_path: Path,
) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7, ranges=LAMBDA)
    study = tmp_path / "study"
    run_planted(space, study, keep=3)
    old = of_trial(study, "STS-B", "dev", "spearman")
    new = of_trial(study, "SICK-R", "dev", "pearson")
    assert objectives(study) == old
    assert max(old, key=lambda n: old[n]) != max(new, key=lambda n: new[n])
    assert searched(study)["objectives"] == ["STS-B:spearman:dev"]

    outcome, actions = run_planted(space, study, objectives=("SICK-R:pearson",))
    assert (outcome.ran, actions) == (0, [])
    assert searched(study)["objectives"] == ["SICK-R:pearson:dev"]
    assert objectives(study) == new
    assert {row["objective_name"] for row in rows(study)} == {"SICK-R:pearson:dev"}
    assert sorted(t.values[0] for t in mirrored(study)) == sorted(new.values())
    best = sorted(new, key=lambda name: -new[name])
    ranked, _ = summaries(Study.read(study))
    assert list(ranked["trial_id"]) == best
    assert list(ranked["objective"]) == [new[name] for name in best]
    assert read_study(study).trials.set_index("trial_id")["objective"].to_dict() == new
    shown = CliRunner().invoke(app, ["show", str(study)], env={"COLUMNS": "200"}).stdout
    assert "SICK-R:pearson:dev" in shown and "STS-B:spearman:dev" not in shown
    places = [shown.index(name[:8]) for name in best]
    assert places == sorted(places)
    # The best by the new one is what is kept.
    assert checkpoints(study) == set(best[:1])

    options = SearchOptions(objectives=("SICK-R:pearson",), trials=1)
    prepared = prepare(space, None, (0,), options)
    prepared.resume_from(History.read(Study.read(study), prepared.objectives))
    assert sorted(t.values[0] for t in told(prepared.proposals)) == sorted(new.values())
    assert len(mirrored(study)) == 3


@pytest.mark.parametrize(
    ("settings", "objective", "mends"),
    [
        ({}, "SST2:accuracy:dev", {"evaluation.suites": ["sts", "transfer"]}),
        (MORE, "MR:accuracy:dev:senteval-5fold", {"evaluation.protocols": ["senteval-5fold"]}),
        ({}, "STS-B:pearson:dev:relatedness", {"evaluation.protocols": ["relatedness"]}),
    ],
)
def test_what_the_trials_would_not_measure_is_refused_with_the_setting_that_mends_it(
    tmp_path: Path, settings: dict[str, Any], objective: str, mends: dict[str, Any]
) -> None:
    space = lambda_space(tmp_path / "space", 0.3).with_overrides(settings)
    (key,) = mends
    with pytest.raises(ObjectiveError, match=rf"--set '?{re.escape(key)}"):
        run_planted(space, tmp_path / "study", objectives=(objective,))
    assert not (tmp_path / "study").exists()
    study, mended = tmp_path / "mended", space.with_overrides({**settings, **mends})
    assert run_planted(mended, study, objectives=(objective,))[0].failures == 0
    assert len(objectives(study)) == 1
    assert searched(study)["objectives"] == [objective]


def test_an_objective_that_nothing_but_training_gives_is_refused_with_retrain_as_the_move(
    tmp_path: Path,
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run_planted(space, study, keep=0)
    asked = space.with_overrides(MORE)
    record, before = searched(study), rows(study)
    stand_in = StandIn(study)
    with pytest.raises(ObjectiveError, match="Give --retrain to train them again") as caught:
        run_planted(asked, study, stand_in, objectives=("SST2:accuracy:dev",))
    assert "2 finished trials have no such score" in str(caught.value)
    assert stand_in.handed == []
    assert searched(study) == record
    assert rows(study) == before
    objective = ("SST2:accuracy:dev",)
    outcome, actions = run_planted(asked, study, objectives=objective, retrain=True)
    assert (actions, outcome.needs_retraining) == (["retrain"] * 2, ())
    assert objectives(study) == {
        key[0]: value for key, value in numbers(study).items() if key[1:3] == ("SST2", "dev")
    }
    assert searched(study)["objectives"] == ["SST2:accuracy:dev"]


def test_the_dev_accuracy_over_folds_steers_real_training(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    wanted = ("MR:accuracy:dev:senteval-5fold", "SST2:accuracy:dev:senteval-5fold")
    outcome = run_here(space.with_overrides(FOLDS), study, objectives=wanted)
    assert (outcome.ran, outcome.failures) == (1, 0)
    (row,) = rows(study)
    for column, task in (("objective", "MR"), ("objective_2", "SST2")):
        (dev,) = (
            score["value"]
            for score in Study.read(study).scores().to_pylist()
            if (score["task"], score["split"], score["metric"]) == (task, "dev", "accuracy")
        )
        assert row[column] == dev > 0
