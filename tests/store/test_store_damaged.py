"""Damaged files are named; whoever says so reads what is left."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from store_samples import finish, opened, row, tables

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.store import Study


def _study(path: Path) -> Path:
    """Two trials in one file a table, one with its own files, and a failed one."""
    with opened(path) as driver:
        finish(driver, "a", 71.0)
        finish(driver, "b", 72.0)
        driver.compact()
        finish(driver, "c", 73.0)
        driver.commit(row("f", "failed"))
    return path


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _emptied(file: Path) -> None:
    file.write_bytes(b"")


def _garbled(file: Path) -> None:
    """Whole at both ends, where Parquet looks first."""
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = os.urandom(len(data) // 2 - 4)
    file.write_bytes(bytes(data))


def _read(path: Path) -> tuple[dict[str, set[str]], list[Fault]]:
    skipped: dict[str, Fault] = {}
    found = tables(Study.read(path, skipped=skipped))
    ids = {folder: {row["trial_id"] for row in rows} for folder, rows in found.items()}
    return ids, list(skipped.values())


def _flipped(file: Path) -> None:
    """Text that is none; all that Parquet looks at is whole."""
    file.write_bytes(file.read_bytes().replace(b"spearman", b"spearm\xff\xff"))


def test_a_text_that_was_damaged_is_damage(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    file = study / "scores" / "c.parquet"
    _flipped(file)
    with pytest.raises(DamagedError, match=re.escape(str(file))):
        tables(Study.read(study))
    assert _read(study)[0]["scores"] == {"a", "b"}


@pytest.mark.parametrize("damage", [_cut, _emptied, _garbled])
@pytest.mark.parametrize(
    ("name", "trials", "scored"),
    [
        ("trials/all.1.parquet", "cf", "c"),
        ("trials/c.1.parquet", "abf", "ab"),
        ("scores/all.1.parquet", "abcf", "c"),
        ("scores/c.parquet", "abcf", "ab"),
        ("curves/all.1.parquet", "abcf", "abc"),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_read(
    name: str, trials: str, scored: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    study = _study(tmp_path / "study")
    damage(study / name)
    with pytest.raises(DamagedError, match="must be a complete Parquet file") as caught:
        tables(Study.read(study))
    assert str(study / name) in str(caught.value)
    ids, faults = _read(study)
    assert (ids["trials"], ids["scores"]) == (set(trials), set(scored))
    assert [fault.where for fault in faults] == [str(study / name)]


def test_what_is_whole_is_read_alike(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    skipped: dict[str, Fault] = {}
    assert tables(Study.read(study, skipped=skipped)) == tables(Study.read(study))
    assert not skipped


def test_a_damaged_row_gives_way_to_the_one_before(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    with opened(study) as driver:
        driver.commit(row("a", attempt=2))
    _emptied(study / "trials" / "a.2.parquet")
    skipped: dict[str, Fault] = {}
    rows = Study.read(study, skipped=skipped).trials(["trial_id", "attempt"]).to_pylist()
    assert {r["trial_id"]: r["attempt"] for r in rows} == {"a": 1, "b": 1, "c": 1, "f": 1}
    assert list(skipped) == ["trials/a.2.parquet"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_the_disk_refuses_is_no_damage(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    (study / "scores" / "c.parquet").chmod(0)
    with pytest.raises(StudyError) as caught:
        _read(study)
    assert not isinstance(caught.value, DamagedError)


def test_a_damaged_manifest_is_damage_and_a_missing_study_is_not(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    for text in ("{", "[]", '{"schema": 1}'):
        (study / "study.json").write_text(text)
        with pytest.raises(DamagedError):
            Study.read(study, skipped={})
    (study / "study.json").write_text('{"schema": 99}')
    for path in (study, tmp_path / "nowhere"):
        with pytest.raises(StudyError) as caught:
            Study.read(path, skipped={})
        assert not isinstance(caught.value, DamagedError)
