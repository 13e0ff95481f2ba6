"""Parts close, and a trial's rows stay in the part that has them."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_samples import TABLES, end, finish, opened, points, row, scores, seen
from table_reader import check, reading

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, driver_files

SMALL = 4


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_files, "MAX_TRIALS", SMALL)


def _trials_by_part(path: Path, folder: str = "trials") -> list[list[str]]:
    files = sorted((path / folder).iterdir())
    assert [file.name for file in files] == [f"{n:06d}.parquet" for n in range(1, len(files) + 1)]
    return [pq.read_table(file)["trial_id"].unique().to_pylist() for file in files]


def test_a_part_closes_with_so_many_trials(tmp_path: Path) -> None:
    for half in range(2):  # the second driver goes on in the part that is open
        with opened(tmp_path) as driver:
            for number in range(5 * half, 5 * half + 5):
                finish(driver, f"t{number}")
    expected = [["t0", "t1", "t2", "t3"], ["t4", "t5", "t6", "t7"], ["t8", "t9"]]
    assert [_trials_by_part(tmp_path, folder) for folder in TABLES] == [expected] * 3


def test_a_part_closes_with_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_files, "MAX_BYTES", 20_000)
    with opened(tmp_path) as driver:
        for name in "abc":
            curve = [replace(p, value=hash((name, p.step)) / 7) for p in points(count=2000)]
            driver.commit(row(name), scores(), curve)
    assert _trials_by_part(tmp_path, "scores") == [["a", "b", "c"]]
    assert len(_trials_by_part(tmp_path, "curves")) > 1


def test_rows_are_replaced_in_their_own_part(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for name in "abcdefgh":
            end(driver, name, "pruned", 1.0)
    for value in (2.0, 3.0):
        with opened(tmp_path) as driver:
            for name in "ah":
                end(driver, name, "finished", value)
        check(tmp_path)
    for table in ("trials", "curves"):
        assert [set(part) for part in _trials_by_part(tmp_path, table)] == [
            set("abcd"),
            set("efgh"),
        ]
    assert _trials_by_part(tmp_path, "scores") == [["a", "h"]]
    curves = Study.read(tmp_path).curves().to_pylist()
    assert {(p["trial_id"], p["value"]) for p in curves if p["trial_id"] in "abh"} == {
        ("a", 3.0),
        ("b", 1.0),
        ("h", 3.0),
    }


@pytest.mark.parametrize("table", ["scores", "curves"])
def test_rows_of_a_driver_that_died_between_two_tables_go(tmp_path: Path, table: str) -> None:
    with opened(tmp_path) as driver:
        finish(driver, "a", 1.0)
    kept = {p: p.read_bytes() for p in tmp_path.rglob("*.parquet") if p.parent.name != table}
    with opened(tmp_path) as driver:
        finish(driver, "b", 1.0)
    for path, data in kept.items():
        path.write_bytes(data)
    seen(tmp_path, a=1.0)
    with opened(tmp_path) as driver:
        finish(driver, "c", 2.0)
        seen(tmp_path, a=1.0, c=2.0)
        finish(driver, "b", 3.0)
    assert set(pd.read_parquet(tmp_path / table)["trial_id"]) == set("abc")
    seen(tmp_path, a=1.0, b=3.0, c=2.0)
    check(tmp_path)


@pytest.mark.parametrize("name", ["t1.1.parquet", "000001 (conflict).parquet"])
def test_other_parquet_files_in_a_table_are_refused(tmp_path: Path, name: str) -> None:
    """They are of another version or of a program that syncs, and pandas would read them."""
    with opened(tmp_path) as driver:
        finish(driver, "a")
    (tmp_path / "trials" / name).write_bytes(b"")
    for act in (lambda: Study.read(tmp_path).trials(), lambda: opened(tmp_path)):
        with pytest.raises(StudyError, match="must hold parts"):
            act()


def test_pandas_sees_a_column_that_is_new_in_this_release(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for number in range(6):
            finish(driver, f"t{number}")
    first = tmp_path / "trials" / "000001.parquet"
    pq.write_table(pq.read_table(first).drop_columns(["method.lambda"]), first)
    assert "method.lambda" not in pd.read_parquet(tmp_path / "trials")
    opened(tmp_path).close()
    assert "method.lambda" in pd.read_parquet(tmp_path / "trials")


def test_a_rewriting_changes_columns_and_no_rows(tmp_path: Path) -> None:
    def doubled(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("objective")
        values = pa.array([2 * value for value in table["objective"].to_pylist()])
        return table.set_column(place, "objective", values)

    with opened(tmp_path) as driver:
        for number in range(6):
            finish(driver, f"t{number}")
        driver.rewrite(doubled)
        driver.rewrite(doubled)
        trials = driver.study.trials(["trial_id", "objective"]).to_pylist()
        assert trials == [{"trial_id": f"t{n}", "objective": 4 * 80.5} for n in range(6)]
        with pytest.raises(ValueError, match="rows and their trial_id"):
            driver.rewrite(lambda table: table.slice(1))
        files = {p: p.stat().st_mtime_ns for p in (tmp_path / "trials").iterdir()}
        driver.rewrite(lambda table: table)
        assert files == {p: p.stat().st_mtime_ns for p in files}, "unchanged parts are not written"
        finish(driver, "t6")
    assert len(Study.read(tmp_path).trials()) == 7


def test_pandas_reads_a_study_whose_trials_end_and_go_on(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with reading(tmp_path), opened(tmp_path) as driver:
        for number in range(20):
            end(driver, f"t{number}", "pruned", 1.0)
            end(driver, f"t{number // 2}", "finished", 2.0)
    assert len(Study.read(tmp_path).trials()) == 20
