"""A later command over a study: what it refuses, what it measures, and what it trains again."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from disk_samples import write_sts_root
from search_samples import (
    Row,
    checkpoints,
    lambda_space,
    objectives,
    rows,
    run_here,
    run_planted,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl import read_study
from tune_sentcl.errors import ObjectiveError, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning import search_run
from tune_sentcl.tuning.plan import make_plan
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions

MORE: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}
SST2 = frozenset({"SST2"})
LOCAL = SearchOptions(launcher="local", gpus_per_trial=0.0)


def test_a_study_has_one_kind_of_evaluation_data(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study)
    before = rows(study)
    asked = space.with_overrides({"evaluation.data": "root"})
    root = write_sts_root(tmp_path / "root")
    with pytest.raises(StudyError, match=r"were scored on toy data.*Choose another folder"):
        run_planted(asked, study, data=root)
    assert rows(study) == before
    with pytest.raises(StudyError, match="was scored on toy evaluation data, and this search is"):
        run_planted(asked, tmp_path / "other", data=root, learn_from=(str(study),))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "objective", "mends"),
    [
        ({}, "SST2:accuracy:dev", MORE),
        (MORE, "MR:accuracy:dev:senteval-5fold", {"evaluation.protocols": ["senteval-5fold"]}),
        ({}, "STS-B:pearson:dev:relatedness", {"evaluation.protocols": ["relatedness"]}),
    ],
)
def test_an_objective_without_its_measurement_names_the_setting_that_adds_it(
    tmp_path: Path, settings: dict[str, Any], objective: str, mends: dict[str, Any]
) -> None:
    space = lambda_space(tmp_path / "space", 0.3).with_overrides(settings)
    study, (key,) = tmp_path / "study", mends
    with pytest.raises(ObjectiveError, match=rf"--set '?{re.escape(key)}"):
        run_planted(space, study, objectives=(objective,))
    assert not study.exists()
    run_planted(space.with_overrides({**settings, **mends}), study, objectives=(objective,))
    assert len(objectives(study)) == 1


def test_an_objective_that_no_set_at_hand_gives_is_refused(tmp_path: Path) -> None:
    compat = {**MORE, "evaluation.protocols": ["cosine", "scl-paper-compat"]}
    space = lambda_space(tmp_path / "space", 0.1).with_overrides(compat)
    with pytest.raises(ObjectiveError, match="no set at hand gives it"):
        prepare(space, None, None, SearchOptions(objectives=("MR:accuracy:dev:scl-paper-compat",)))


def test_a_trial_that_ends_between_two_reads_is_in_the_next_reading(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.2), tmp_path / "study"
    run_planted(space.with_overrides({"method.lambda": 0.1}), study)

    class Grows(Study):
        """A study in which another trial ends once its rows have been read."""

        def scores(self, *arguments: Any) -> Any:
            run_planted(space, study)
            return super().scores(*arguments)

    kept = Study.read(study)
    assert len(History.read(Grows(kept.files, kept.manifest), [DEFAULT])) == 1
    assert len(History.read(Study.read(study), [DEFAULT])) == 2


@pytest.mark.parametrize(
    ("key", "choices", "column"),
    [
        ("suites", [["sts"], ["sts", "transfer"]], "suite"),
        ("protocols", [["relatedness"], ["cosine"]], "protocol"),
    ],
)
def test_two_grid_points_of_one_trial_ask_for_the_measurements_of_both(
    tmp_path: Path, key: str, choices: list[list[str]], column: str
) -> None:
    block = f"fixed.method.lambda = 0.1\ngrid.evaluation.{key} = {choices}"
    study = tmp_path / "study"
    outcome, _ = run_planted(tiny_space(tmp_path / "space", block), study)
    assert (outcome.trials, outcome.ran) == (1, 1)
    assert set(Study.read(study).scores()[column].to_pylist()) == set(choices[0] + choices[1])


def test_a_study_that_another_command_began_meanwhile_is_not_taken_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1), tmp_path / "study"
    run_planted(space, study)
    monkeypatch.setattr(search_run, "study_at", lambda *_: None)
    with pytest.raises(StudyError, match=r"in the meantime.*Repeat the command"):
        run_planted(space, study)


@pytest.mark.parametrize("end", ["fail", "lose"])
def test_a_retraining_that_fails_leaves_row_scores_and_curves(tmp_path: Path, end: Any) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run_planted(space, study, keep=0)
    before, stand_in = tables(study), StandIn(study, lambda config: end)
    outcome, _ = run_planted(space.with_overrides(MORE), study, stand_in, keep=0, retrain=True)
    assert (outcome.ran, outcome.failures) == (2, 2)
    assert tables(study) == before


def tables(study: Path) -> list[list[Row]]:
    """The rows of the three tables, each sorted."""
    kept = Study.read(study)
    three = (kept.trials(), kept.scores(), kept.curves())
    return [sorted(table.to_pylist(), key=repr) for table in three]


def missing(study: Path) -> list[tuple[str, str]]:
    """The task and the reason of each score that could not be taken."""
    scores = Study.read(study).scores().to_pylist()
    return [(score["task"], score["reason"]) for score in scores if score["value"] is None]


@pytest.mark.parametrize("keep", [0, 3])
def test_a_score_that_always_fails_is_tried_once_a_repetition_and_never_trained_for(
    tmp_path: Path, keep: int
) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7).with_overrides(MORE)
    study = tmp_path / "study"
    run_planted(space, study, StandIn(study, broken=SST2), keep=keep)
    for _ in range(2):
        stand_in = StandIn(study, broken=SST2, at_once=1)
        outcome, actions = run_planted(space, study, stand_in, keep=keep, retrain=True)
        # The first one shows that the reason still holds, so that no other one is tried for it.
        assert actions == (["measure"] if keep else [])
        assert (outcome.failures, outcome.needs_retraining) == (0, ())
        assert missing(study) == [("SST2", "it is broken")] * 3
    other = StandIn(study, broken=frozenset({"TREC"}), at_once=1)
    assert run_planted(space, study, other, keep=keep)[1] == ["measure"] * keep
    assert missing(study) == ([] if keep else [("SST2", "it is broken")] * 3)


def test_more_suites_are_measured_from_the_kept_weights(tmp_path: Path) -> None:
    """Real training."""
    study, small = tmp_path / "study", {"data.limit": 64, "method.lambda": 0.3}
    run_here(load_space("smoke", small), study, seeds=(0, 1), gpus_per_trial=0.0)
    before = read_study(study)
    (kept,) = checkpoints(study)
    asked = load_space("smoke", {**small, **MORE})
    plan = make_plan(asked, str(study), None, (0, 1), LOCAL)
    statuses = {row["trial_id"]: row["status"] for row in plan.rows()}
    assert statuses.pop(kept) == "to score"
    ((other, status),) = statuses.items()
    assert status == "finished; lacks a score, its weights were not kept"
    assert any("--retrain" in note for note in plan.notes)
    outcome = run_here(asked, study, seeds=(0, 1), gpus_per_trial=0.0)
    assert (outcome.ran, outcome.failures, outcome.needs_retraining) == (1, 0, (other,))
    after = read_study(study)
    old, new = (frames.trials.set_index("trial_id").loc[kept] for frames in (before, after))
    assert list(new["evaluation.suites"]) == ["sts", "transfer"]
    same = ["attempt", "status", "steps", "train_seconds"]
    assert new[same].to_dict() == old[same].to_dict()
    assert new["evaluation_seconds"] > old["evaluation_seconds"]
    keys = ["trial_id", "task", "subset", "split", "metric", "aggregation", "protocol"]
    both = before.scores.merge(after.scores, on=keys, suffixes=("_old", "_new"))
    assert len(both) == len(before.scores)
    assert (both["value_old"] - both["value_new"]).abs().max() < 1e-3
    protocols = after.scores.groupby("trial_id")["protocol"].agg(set).to_dict()
    assert protocols == {kept: {"cosine", "logreg-10fold"}, other: {"cosine"}}
    assert len(before.curves) == len(after.curves) > 0


@pytest.mark.parametrize(
    "lost", [{"protocol": "senteval-5fold"}, {"task": "TREC"}, {"split": "dev", "suite": "sts"}]
)
def test_every_score_that_is_asked_for_counts(tmp_path: Path, lost: Row) -> None:
    folds = {"evaluation.protocols": ["cosine", "senteval-5fold"]}
    asked = {**MORE, **folds, "evaluation.classifier_seeds": 2}
    space, study = lambda_space(tmp_path / "space", 0.3).with_overrides(asked), tmp_path / "study"
    run_planted(space, study)
    assert run_planted(space, study)[1] == []
    (path,) = (study / "scores").glob("*.parquet")
    table = pq.read_table(path)
    kept = [row for row in table.to_pylist() if not lost.items() <= row.items()]
    assert 0 < len(kept) < len(table)
    pq.write_table(pa.Table.from_pylist(kept, schema=table.schema), path)
    assert run_planted(space, study)[1] == ["measure"]
