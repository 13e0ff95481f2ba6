"""Searches that ask for more scores than the study holds, and for fewer."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from launch_samples import Row, lambda_space, objectives, rows, run_here, run_planted

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import Action, History
from tune_sentcl.space import Space
from tune_sentcl.store.reading.study import Study
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions

BOTH = 'evaluation.suites = ["sts", "transfer"]\n'
QUICK = BOTH + 'evaluation.protocols = ["cosine", "senteval-5fold"]\n'


def space_of(folder: Path, fixed: str = "") -> Space:
    return lambda_space(folder, 0.3, fixed=fixed)


def scores(study: Path) -> list[Row]:
    return list(Study.read(study).scores().to_pylist())


def seeds(study: Path) -> set[Any]:
    return {row["classifier_seed"] for row in scores(study) if row["suite"] == "transfer"}


def actions(space: Space, study: Path) -> list[Action]:
    """What a search of this space would do."""
    prepared = prepare(space, None, (0,), SearchOptions(launcher="local"))
    prepared.resume_from(History.read(Study.read(study), prepared.objectives))
    return [assignment.action for assignment in prepared.proposals.queued()]


def test_a_trial_that_lacks_transfer_scores_is_no_answer(tmp_path: Path) -> None:
    study = tmp_path / "study"
    plain = space_of(tmp_path / "plain")
    assert run_here(plain, study).ran == 1
    before = objectives(study)
    asked = space_of(tmp_path / "asked", QUICK)
    assert (actions(plain, study), actions(asked, study)) == ([], ["measure"])
    assert run_here(asked, study).ran == 1
    # The same trial: what is measured does not name it, nor change what was measured before.
    (row,) = rows(study)
    assert (row["status"], row["attempt"]) == ("finished", 1)
    assert objectives(study) == pytest.approx(before, abs=0.01)
    assert {(r["task"], r["protocol"]) for r in scores(study) if r["suite"] == "transfer"} == {
        (task, "senteval-5fold")
        for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICK-E")
    }
    # Now it answers both, and one with fewer seeds than were measured.
    assert actions(asked, study) == actions(plain, study) == []
    two = space_of(tmp_path / "two", QUICK + "evaluation.classifier_seeds = 2\n")
    assert actions(two, study) == ["measure"]
    assert run_here(two, study).ran == 1
    assert seeds(study) == {1111, 1112}
    assert run_here(asked, study).ran == 0
    assert run_here(two, study).ran == 0


@pytest.mark.parametrize(
    "lost", [{"protocol": "senteval-5fold"}, {"task": "TREC"}, {"split": "dev", "suite": "sts"}]
)
def test_every_score_that_is_asked_for_counts(tmp_path: Path, lost: Row) -> None:
    study, seconds = tmp_path / "study", {"evaluation.classifier_seeds": 2}
    asked = space_of(tmp_path / "space", QUICK).with_overrides(seconds)
    run_planted(asked, study)
    assert actions(asked, study) == []
    (path,) = (study / "scores").glob("*.parquet")
    table = pq.read_table(path)
    kept = [row for row in table.to_pylist() if not lost.items() <= row.items()]
    assert 0 < len(kept) < len(table)
    pq.write_table(pa.Table.from_pylist(kept, schema=table.schema), path)
    assert actions(asked, study) == ["measure"]


def test_the_settings_are_in_the_row(tmp_path: Path) -> None:
    study = tmp_path / "study"
    run_here(space_of(tmp_path / "space", QUICK), study)
    (row,) = rows(study)
    assert row["evaluation.suites"] == ["sts", "transfer"]
    config = TrialConfig.model_validate_json(row["config"])
    assert config.evaluation.protocols == ("cosine", "senteval-5fold")
