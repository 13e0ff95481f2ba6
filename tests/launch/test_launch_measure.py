"""A finished trial that lacks a score is measured from its weights, and left without them."""

from pathlib import Path
from typing import Any

import pytest

from tune_sentcl import read_study
from tune_sentcl.launch import search
from tune_sentcl.tuning.planning.plan import make_plan
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import SearchOutcome

OPTIONS = SearchOptions(launcher="local", keep=1, gpus_per_trial=0.0)
MORE: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}
SMALL = {"data.limit": 64, "method.lambda": 0.3}


def run(study: Path, **more: Any) -> SearchOutcome:
    return search("smoke", study, overrides={**SMALL, **more}, seeds=(0, 1), options=OPTIONS)


def test_more_suites_are_measured_from_the_kept_weights(tmp_path: Path) -> None:
    study = tmp_path / "study"
    run(study)
    before = read_study(study)
    (kept,) = [path.name for path in (study / "checkpoints").iterdir()]
    plan = make_plan("smoke", str(study), None, {**SMALL, **MORE}, (0, 1), OPTIONS)
    statuses = {row["trial_id"]: row["status"] for row in plan.rows}
    assert statuses.pop(kept) == "to measure"
    ((other, status),) = statuses.items()
    assert status == "finished; lacks a score, its weights were not kept"
    assert any("--retrain" in note for note in plan.notes)
    outcome = run(study, **MORE)
    assert (outcome.ran, outcome.failures, outcome.needs_retraining) == (1, 0, (other,))
    after = read_study(study)
    assert set(after.trials["trial_id"]) == set(before.trials["trial_id"])
    old = before.trials.set_index("trial_id").loc[kept]
    new = after.trials.set_index("trial_id").loc[kept]
    assert new["attempt"] == 1 and new["status"] == "finished"
    assert new["steps"] == old["steps"] > 0
    assert new["train_seconds"] == old["train_seconds"]
    assert new["evaluation_seconds"] > old["evaluation_seconds"]
    pd_keys = ["trial_id", "task", "subset", "split", "metric", "aggregation", "protocol"]
    both = before.scores.merge(after.scores, on=pd_keys, suffixes=("_old", "_new"))
    assert len(both) == len(before.scores)
    of_kept = both[both["trial_id"] == kept]
    assert (of_kept["value_old"] - of_kept["value_new"]).abs().max() < 1e-3
    protocols = after.scores.groupby("trial_id")["protocol"].agg(set).to_dict()
    assert protocols == {kept: {"cosine", "logreg-10fold"}, other: {"cosine"}}
    curves = [frames.curves[frames.curves["trial_id"] == kept] for frames in (before, after)]
    assert len(curves[0]) == len(curves[1]) > 0
    assert run(study, **MORE).ran == 0 and run(study).ran == 0


def test_scores_of_other_protocols_stay(tmp_path: Path) -> None:
    study = tmp_path / "study"
    run(study, **MORE)
    run(study, **MORE, **{"evaluation.protocols": ["relatedness"]})
    scores = read_study(study).scores
    (kept,) = [path.name for path in (study / "checkpoints").iterdir()]
    of_kept = scores[scores["trial_id"] == kept]
    assert set(of_kept["protocol"]) == {"cosine", "logreg-10fold", "relatedness"}
    keys = ["task", "subset", "split", "metric", "aggregation", "protocol", "classifier_seed"]
    assert not of_kept.duplicated(keys).any()


def test_a_measurement_that_fails_takes_nothing_from_the_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    run(study)
    before = read_study(study).trials.set_index("trial_id")
    (kept,) = (study / "checkpoints").iterdir()
    (kept / "model.safetensors").write_bytes(b"cut short")
    outcome = run(study, **MORE)
    assert (outcome.ran, outcome.failures) == (1, 1)
    assert "CheckpointError" in capsys.readouterr().err
    after = read_study(study).trials.set_index("trial_id")
    assert list(after["status"]) == ["finished", "finished"]
    assert after["objective"].to_dict() == before["objective"].to_dict()
