"""What a study keeps, whom it refuses, and what its readers see."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
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
from tune_sentcl.store import SearchRecord, Study, driver_files
from tune_sentcl.store.rows import CURVES, SCORES, trials_schema


def test_a_trial_comes_back_as_it_was_committed(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        study.commit(row("t1", config=scl(7, **{"lambda": 0.9})), scores(), points())
    reader = Study.read(tmp_path)
    assert reader.trials().schema.equals(trials_schema(), check_metadata=True)
    assert reader.scores().schema.equals(SCORES)
    assert reader.curves().schema.equals(CURVES)
    (trial,) = reader.trials().to_pylist()
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
    assert [s["value"] for s in reader.scores().to_pylist()] == [70.0, 70.0]
    assert [p["step"] for p in reader.curves().to_pylist()] == [0, 1, 2]


@pytest.mark.parametrize("status", ["failed", "pruned"])
def test_a_finished_row_gives_way_to_a_finished_one_only(
    tmp_path: Path, status: Literal["failed", "pruned"]
) -> None:
    with opened(tmp_path) as driver:
        finish(driver, "t1")
    with opened(tmp_path) as driver:
        with pytest.raises(ValueError, match="t1 has finished"):
            driver.commit(row("t1", status))
        driver.commit(row("t1", attempt=2))
        assert driver.study.trials(["attempt"]).to_pylist() == [{"attempt": 2}]
        assert len(driver.study.scores()) == 2


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


def test_an_older_file_lacks_a_column_and_a_newer_one_has_one_more(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, opened(tmp_path) as driver:
        patch.setattr(driver_files, "MAX_TRIALS", 1)
        for name in ("t1", "t2", "t3"):
            finish(driver, name)
    old, new = (tmp_path / "trials" / f"00000{number}.parquet" for number in (1, 2))
    pq.write_table(pq.read_table(old).drop_columns(["attempt", "method.lambda"]), old)
    table = pq.read_table(new)
    pq.write_table(table.append_column("method.slope", pa.array([0.25])), new)
    with opened(tmp_path) as driver:
        for attempt in (1, 2):
            trials = {t["trial_id"]: t for t in driver.study.trials().to_pylist()}
            assert [trials[t]["attempt"] for t in ("t1", "t2", "t3")] == [None, 1, attempt]
            slopes = [trials[t]["method.slope"] for t in ("t1", "t2", "t3")]
            assert slopes == [None, 0.25, None]
            assert driver.study.trials().schema.names == [*trials_schema().names, "method.slope"]
            driver.commit(row("t3", attempt=2))
        driver.commit(row("t2", attempt=2))
        assert len(driver.study.trials()) == 3


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
    with pytest.raises(StudyError, match="'tiny', not 'other'"):
        opened(tmp_path, space=space("other"))
    opened(tmp_path).close()  # whoever was refused let the lock go


def test_a_closed_driver_writes_nothing(tmp_path: Path) -> None:
    driver = opened(tmp_path)
    driver.close()
    with pytest.raises(StudyError, match="closed"):
        driver.commit(row("t1"))
    assert not any(hasattr(Study, name) for name in ("commit", "rewrite", "open", "record"))
