"""Parts close, and a trial's rows stay in the part that has them."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_samples import TABLES, finish, opened, points, row, scores

from tune_sentcl.store import driver_files
from tune_sentcl.store.rows import trials_schema

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
