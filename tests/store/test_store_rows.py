"""What a row holds: every fact and knob, in types that stay."""

import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_samples import (
    finish,
    opened,
    row,
    scores,
)

from tune_sentcl.store import TrialRow, stored_run_columns
from tune_sentcl.store.manifest import git_commit
from tune_sentcl.store.rows import trials_schema


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        replace(row("t1"), started_at=datetime(2026, 1, 1))


def test_columns_keep_their_types_when_all_null(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        finish(study, "t2")
        study.commit(row("t1", "failed"))
    table = pq.read_table(tmp_path / "trials" / "000001.parquet")
    assert table.schema.equals(trials_schema())
    assert table.schema.metadata[b"tune_sentcl.schema"] == b"1"
    assert pq.read_table(tmp_path / "scores")["classifier_seed"].type == pa.int64()


def test_a_failed_score_is_kept_with_its_reason(tmp_path: Path) -> None:
    failed = replace(scores()[0], value=None, reason="no value")
    with opened(tmp_path) as driver:
        driver.commit(row("t1"), [failed])
        (kept,) = driver.study.scores().to_pylist()
    assert (kept["value"], kept["reason"]) == (None, "no value")


def test_texts_that_are_not_utf_8_are_stored(tmp_path: Path) -> None:
    with opened(tmp_path / "x\udcff", command=["search", "x\udcff"]) as driver:
        driver.commit(replace(row("t1", "failed"), error_text="no \udcff here"))
        (kept,) = driver.study.trials(["error_text"]).to_pylist()
    assert kept["error_text"] == "no \\udcff here"


def test_a_row_is_written_again_from_what_is_stored(tmp_path: Path) -> None:
    trial = replace(row("t1"), gpu_seconds=0.7, notes="mended", selection_fingerprint="f")
    with opened(tmp_path) as driver:
        driver.commit(trial)
        (kept,) = driver.study.trials().to_pylist()
    again = TrialRow(
        trial.config,
        trial_id="t1",
        configuration="c0",
        space="tiny",
        origin="grid",
        status="finished",
        objectives=trial.objectives,
        **stored_run_columns(kept),
    )
    assert again == trial


def test_every_objective_has_its_columns(tmp_path: Path) -> None:
    trial = replace(row("t1"), objectives=(("a", 1.0), ("b", 2.0), ("c", None)))
    with opened(tmp_path) as driver:
        driver.commit(trial)
        (kept,) = driver.study.trials().to_pylist()
    columns = ("objective", "objective_2", "objective_3", "objective_5")
    values = [(kept[f"{name}_name"], kept[name]) for name in columns]
    assert values == [("a", 1.0), ("b", 2.0), ("c", None), (None, None)]
    with pytest.raises(ValueError, match="5 objectives"):
        replace(trial, objectives=(("a", 1.0),) * 6)


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() is None
    (tmp_path / "file").write_text("a")
    try:
        subprocess.run(["git", "init", "-q"], check=True)
    except FileNotFoundError:
        pytest.skip("there is no git here")
    subprocess.run(["git", "add", "file"], check=True)
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-q", "-m", "x", "--no-verify"], check=True)
    commit = git_commit()
    assert commit is not None and len(commit) == 40
    (tmp_path / "untracked").write_text("b")
    assert git_commit() == commit
    (tmp_path / "file").write_text("b")
    assert git_commit() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None
