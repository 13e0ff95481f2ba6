"""Files are brought together while others read, and one of them counts for each trial."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_samples import TABLES, finish, opened, points, row, scores, worker

from tune_sentcl.store import Study
from tune_sentcl.store.disk import DiskStorage
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Manifest

SMALL = 4


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("driver", "compaction"):
        monkeypatch.setattr(f"tune_sentcl.store.writing.{module}.TRIALS_PER_SEGMENT", SMALL)


def _files(path: Path, folder: str) -> list[str]:
    return sorted(p.name for p in (path / folder).iterdir())


@pytest.mark.usefixtures("small_segments")
def test_trials_are_gathered_when_there_are_enough(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        worker(driver).write_scores("running", scores())
        for number in range(SMALL - 1):
            driver.commit(row(f"t{number}"))
        worker(driver).write_scores("t0", scores())
        assert len(_files(tmp_path, "trials")) == SMALL - 1
        driver.commit(row("last"), running=["running", "elsewhere"])
        assert _files(tmp_path, "trials") == ["all-0001.1.parquet"]
        assert _files(tmp_path, "scores") == ["all-0001.1.parquet", "running.parquet"]
        assert _files(tmp_path, "curves") == []
        assert len(driver.study.trials()) == SMALL
        assert len(driver.study.scores()) == 2
        driver.compact()
        assert _files(tmp_path, "trials") == ["all.1.parquet"]
        assert len(driver.study.trials()) == SMALL


@pytest.mark.usefixtures("small_segments")
def test_the_newest_file_of_a_trial_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for attempt in range(1, 10):
            finish(driver, "again", float(attempt))
            driver.commit(row("again", attempt=attempt))
            for number in range(3):
                finish(driver, f"t{attempt}-{number}")
            if attempt == 7:
                driver.compact()
            (kept,) = [t for t in driver.study.trials().to_pylist() if t["trial_id"] == "again"]
            assert kept["attempt"] == attempt
            found = [s["value"] for s in driver.study.scores().to_pylist()]
            assert [value for value in found if value != 70.0] == [float(attempt)] * 2
        assert _files(tmp_path, "trials")[:2] == ["all-0001.1.parquet", "all-0002.1.parquet"]


@pytest.mark.usefixtures("small_segments")
def test_what_a_trial_has_none_of_any_more_does_not_come_back(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for name in "abcd":
            finish(driver, name)
        worker(driver).write_curves("a", [])
        for name in "aefg":
            driver.commit(row(name))
        assert _files(tmp_path, "curves") == ["all-0001.1.parquet", "all-0002.1.parquet"]
        for _ in range(2):
            assert {p["trial_id"] for p in driver.study.curves().to_pylist()} == set("bcd")
            driver.compact()


@pytest.mark.usefixtures("small_segments")
def test_files_that_workers_write_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for name in "abc":
            finish(driver, name)
        worker(driver).write_scores("a", scores(99.0))
        driver.commit(row("d"), running=["a"])
        assert _files(tmp_path, "trials") == [f"{name}.1.parquet" for name in "abcd"]
        driver.commit(row("e"), running=["a"])
        assert _files(tmp_path, "trials") == ["all-0001.1.parquet"]
        assert _files(tmp_path, "scores") == ["a.parquet", "all-0001.1.parquet"]
        driver.compact(running=["a"])
        assert _files(tmp_path, "scores") == ["a.parquet", "all.1.parquet"]
        assert {s["value"] for s in driver.study.scores().to_pylist()} == {70.0, 99.0}
    with opened(tmp_path) as driver:
        driver.compact()
        assert _files(tmp_path, "scores") == ["all.2.parquet"]
        assert len(driver.study.scores()) == 6


@pytest.mark.usefixtures("small_segments")
def test_a_rewriting_changes_columns_and_no_rows(tmp_path: Path) -> None:
    def doubled(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("objective")
        values = pa.array([2 * value for value in table["objective"].to_pylist()])
        return table.set_column(place, "objective", values)

    with opened(tmp_path) as driver:
        for number in range(6):
            finish(driver, f"t{number}")
        driver.compact(doubled)
        driver.compact(doubled)
        trials = driver.study.trials(["trial_id", "objective"]).to_pylist()
        assert trials == [{"trial_id": f"t{n}", "objective": 4 * 80.5} for n in range(6)]
        with pytest.raises(ValueError, match="rows and their trial_id"):
            driver.compact(lambda table: table.slice(1))
        assert len(driver.study.trials()) == 6


@pytest.mark.usefixtures("small_segments")
def test_a_compacted_file_has_a_row_group_for_so_many_trials(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for number in range(18):
            worker(driver).write_curves(f"t{number:02d}", points(count=2))
            driver.commit(row(f"t{number:02d}"))
            if number % 6 == 5:
                driver.compact()
        for folder, rows in (("trials", 1), ("curves", 2)):
            file = pq.ParquetFile(tmp_path / folder / "all.1.parquet")
            sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
            assert sum(sizes) == 18 * rows
            assert max(sizes) < 2 * SMALL * rows
            assert min(sizes[:-1]) >= SMALL * rows


class _Torn(DiskStorage):
    """A disk whose first listing of the trials misses everything."""

    torn: ClassVar = [True]

    def versions(self, folder: str) -> dict[str, Any]:
        if folder == "trials" and self.torn:
            self.torn.clear()
            return {}
        return super().versions(folder)


@pytest.mark.usefixtures("small_segments")
def test_a_listing_that_missed_a_segment_is_made_again(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for name in "abcd":
            driver.commit(row(name))
    files = StudyFiles(_Torn(tmp_path), str(tmp_path))
    assert len(Study(files, Manifest.read(files)).trials()) == 4
    assert not _Torn.torn


class _Shrinking(DiskStorage):
    """A disk on which something happens before each opening of a file."""

    listings: ClassVar[list[str]] = []
    happening: ClassVar[list[Callable[[], object]]] = []

    def versions(self, folder: str) -> dict[str, Any]:
        self.listings.append(folder)
        return super().versions(folder)

    def open(self, name: str) -> Any:
        if self.happening:
            self.happening.pop()()
        return super().open(name)


@pytest.mark.parametrize(
    ("folder", "successor"),
    [("trials", "before"), ("trials", "meanwhile"), ("scores", "meanwhile")],
)
def test_own_files_that_go_cost_one_reading(tmp_path: Path, folder: str, successor: str) -> None:
    with opened(tmp_path) as driver:
        for number in range(12):
            finish(driver, f"t{number}")
    study = Study.read(tmp_path)
    whole = getattr(study, folder)()
    own = {path: path.read_bytes() for path in sorted((tmp_path / folder).iterdir())}
    with opened(tmp_path) as driver:
        driver.compact()
    (one,) = (tmp_path / folder).iterdir()
    for path, data in own.items():
        path.write_bytes(data)
    _Shrinking.listings.clear()
    _Shrinking.happening[:] = [path.unlink for path in own]  # from the last, against the reading
    if successor == "meanwhile":
        _Shrinking.happening.append(partial(one.rename(tmp_path / "compacted").rename, one))
    files = StudyFiles(_Shrinking(tmp_path), str(tmp_path))
    found = getattr(Study(files, study.manifest), folder)()
    assert found.sort_by("trial_id").equals(whole.sort_by("trial_id"))
    assert len(_Shrinking.listings) <= 4


@pytest.mark.usefixtures("small_segments")
def test_a_reader_beside_a_driver_sees_each_trial_once(tmp_path: Path) -> None:
    opened(tmp_path).close()
    committed: list[str] = []
    ended = Event()

    def read() -> int:
        study, rounds = Study.read(tmp_path), 0
        while not ended.is_set():
            sure = list(committed)
            scored = study.scores(["trial_id"])["trial_id"].to_pylist()
            trials = study.trials(["trial_id"])["trial_id"].to_pylist()
            assert len(set(trials)) == len(trials)
            assert set(sure) <= set(trials)
            assert set(sure) <= set(scored)
            assert all(scored.count(trial_id) == 2 for trial_id in set(scored))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            with opened(tmp_path) as driver:
                for number in range(24):
                    finish(driver, f"t{number}")
                    committed.append(f"t{number}")
                    if number % 9 == 8:
                        driver.compact()
        finally:
            ended.set()
    assert all(reader.result() > 0 for reader in readers)
    assert {len(getattr(Study.read(tmp_path), name)()) for name in TABLES} == {24, 48, 72}
