"""What a study keeps, whom it refuses, and what its readers see."""

import json
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from store_samples import (
    finish,
    opened,
    points,
    row,
    scl,
    scores,
    space,
)

from tune_sentcl.config import parse_config
from tune_sentcl.errors import StudyError
from tune_sentcl.store import SearchRecord, Study
from tune_sentcl.store.manifest import git_commit
from tune_sentcl.store.rows import CURVES, SCORES, trials_schema


def test_columns_and_rows_that_are_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        finish(driver, "t1")
        finish(driver, "t2", 71.0)
        trials = driver.study.trials(["status", "seed"])
        assert trials.column_names == ["status", "seed"]
        where = (pc.field("task") == "STS13") & pc.field("subset").is_null()
        found = driver.study.scores(["trial_id", "value"], where)
        assert found.to_pylist() == [
            {"trial_id": "t1", "value": 70.0},
            {"trial_id": "t2", "value": 71.0},
        ]
        last = driver.study.curves(["step"], pc.field("step") > 1)
        assert last.to_pylist() == [{"step": 2}, {"step": 2}]
        assert driver.study.scores(where=pc.field("value").is_null()).schema.equals(SCORES)


def test_a_manifest_remembers_texts_commands_and_what_a_search_asked(tmp_path: Path) -> None:
    opened(tmp_path, command=["a", "b c"]).close()
    first = Study.read(tmp_path).manifest
    assert first.search is None and first.versions["python"]
    asked = SearchRecord(("STS-B:spearman:dev",), "tpe", 3, ("s3://bucket/other",))
    with opened(tmp_path, space=space(text="more"), command=["b"]) as driver:
        driver.record(asked)
    opened(tmp_path, command=["b"]).close()
    manifest = Study.read(tmp_path).manifest
    assert manifest.space_texts == ("more", space().text), "the last search's text is the last"
    assert manifest.commands == ("a 'b c'", "b")
    assert (manifest.created, manifest.search) == (first.created, asked)
    with pytest.raises(StudyError, match="'tiny', not to 'other'"):
        opened(tmp_path, space=space("other"))
    opened(tmp_path).close()  # whoever was refused let the lock go


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        replace(row("t1"), started_at=datetime(2026, 1, 1))


def test_texts_that_are_not_utf_8_are_stored(tmp_path: Path) -> None:
    with opened(tmp_path / "x\udcff", command=["search", "x\udcff"]) as driver:
        driver.commit(replace(row("t1", "failed"), error_text="no \udcff here"))
        (kept,) = driver.study.trials(["error_text"]).to_pylist()
    assert kept["error_text"] == "no \\udcff here"


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


def test_a_trial_comes_back_as_it_was_committed(tmp_path: Path) -> None:
    failed = replace(scores()[0], value=None, reason="no value")
    with opened(tmp_path) as study:
        study.commit(row("t0", "failed"))
        study.commit(row("t1", config=scl(7, **{"lambda": 0.9})), [*scores(), failed], points())
    reader = Study.read(tmp_path)
    schemas = {"trials": trials_schema(), "scores": SCORES, "curves": CURVES}
    for name, schema in schemas.items():
        assert getattr(reader, name)().schema.equals(schema, check_metadata=True)
        stored = pq.read_table(tmp_path / name / "000001.parquet").schema
        assert stored.equals(schema), "also where all values are null"
        assert stored.metadata[b"tune_sentcl.schema"] == b"1"
    _, trial = reader.trials().to_pylist()
    expected = {
        "method.lambda": 0.9,
        "method.num_positives": "3",
        "method.num_negatives": "all",
        "method.cross_premise_label": None,
        "evaluation.suites": ["sts"],
        "encoder.share_duplicates": True,
        "seed": 7,
        "started_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "version_python": "3.11.0",
        "version_ray": None,
    }
    assert {name: trial[name] for name in expected} == expected
    config = json.loads(trial["config"])
    # A row states a value where a config leaves it to the checkpoint.
    assert [config["encoder"].pop(name) for name in ("pooling", "max_length")] == ["mean", 512]
    assert parse_config(config, "test") == scl(7, **{"lambda": 0.9})
    stored_scores = [(s["value"], s["reason"]) for s in reader.scores().to_pylist()]
    assert stored_scores == [(70.0, None), (70.0, None), (None, "no value")]
    assert [p["step"] for p in reader.curves().to_pylist()] == [0, 1, 2]


@pytest.mark.parametrize("status", ["failed", "pruned"])
def test_a_finished_row_gives_way_to_a_finished_one_only(
    tmp_path: Path, status: Literal["failed", "pruned"]
) -> None:
    driver = opened(tmp_path)
    finish(driver, "t1")
    with pytest.raises(ValueError, match="t1 has finished"):
        driver.commit(row("t1", status))
    driver.commit(row("t1", attempt=2))
    assert driver.study.trials(["attempt"]).to_pylist() == [{"attempt": 2}]
    assert len(driver.study.scores()) == 2
    driver.close()
    with pytest.raises(StudyError, match="closed"):
        driver.commit(row("t1"))
