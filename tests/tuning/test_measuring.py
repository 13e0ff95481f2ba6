"""A finished trial that lacks a score is measured from its weights, and left without them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from search_samples import Row, checkpoints, lambda_space, run_planted

from tune_sentcl import read_study
from tune_sentcl.history import Action, History
from tune_sentcl.launch import search
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.plan import make_plan
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import SearchOutcome

OPTIONS = SearchOptions(launcher="local", keep=1, gpus_per_trial=0.0)
MORE: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}
QUICK = """evaluation.suites = ["sts", "transfer"]
evaluation.protocols = ["cosine", "senteval-5fold"]
"""
SMALL = {"data.limit": 64, "method.lambda": 0.3}


def run(study: Path, **more: Any) -> SearchOutcome:
    return search("smoke", study, overrides={**SMALL, **more}, seeds=(0, 1), options=OPTIONS)


def test_more_suites_are_measured_from_the_kept_weights(tmp_path: Path) -> None:
    study = tmp_path / "study"
    run(study)
    before = read_study(study)
    (kept,) = checkpoints(study)
    plan = make_plan(load_space("smoke", {**SMALL, **MORE}), str(study), None, (0, 1), OPTIONS)
    statuses = {row["trial_id"]: row["status"] for row in plan.rows()}
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
    assert list(new["evaluation.suites"]) == ["sts", "transfer"]
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


def actions(space: Space, study: Path) -> list[Action]:
    """What a search of this space would do."""
    prepared = prepare(space, None, (0,), SearchOptions(launcher="local"))
    prepared.resume_from(History.read(Study.read(study), prepared.objectives))
    return [assignment.action for assignment in prepared.proposals.queued()]


@pytest.mark.parametrize(
    "lost", [{"protocol": "senteval-5fold"}, {"task": "TREC"}, {"split": "dev", "suite": "sts"}]
)
def test_every_score_that_is_asked_for_counts(tmp_path: Path, lost: Row) -> None:
    study, seconds = tmp_path / "study", {"evaluation.classifier_seeds": 2}
    asked = lambda_space(tmp_path / "space", 0.3, fixed=QUICK).with_overrides(seconds)
    run_planted(asked, study)
    assert actions(asked, study) == []
    (path,) = (study / "scores").glob("*.parquet")
    table = pq.read_table(path)
    kept = [row for row in table.to_pylist() if not lost.items() <= row.items()]
    assert 0 < len(kept) < len(table)
    pq.write_table(pa.Table.from_pylist(kept, schema=table.schema), path)
    assert actions(asked, study) == ["measure"]
