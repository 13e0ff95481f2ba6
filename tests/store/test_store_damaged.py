"""Damaged files are named."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from store_samples import TABLES, end, finish, opened, tables

from tune_sentcl.errors import DamagedError, StudyError
from tune_sentcl.store import Study


def _study(path: Path) -> Path:
    with opened(path) as driver:
        finish(driver, "a", 71.0)
        end(driver, "f", "failed")
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


def _flipped(file: Path) -> None:
    """Text that is none; all that Parquet looks at is whole."""
    file.write_bytes(file.read_bytes().replace(b"spearman", b"spearm\xff\xff"))


def test_a_text_that_was_damaged_is_damage(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    file = study / "scores" / "000001.parquet"
    _flipped(file)
    with pytest.raises(DamagedError, match=re.escape(str(file))):
        tables(Study.read(study))


@pytest.mark.parametrize("damage", [_cut, _emptied, _garbled])
@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_file_is_named_and_stays(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    study = _study(tmp_path / "study")
    file = study / name / "000001.parquet"
    damage(file)
    data = file.read_bytes()
    for act in (lambda: tables(Study.read(study)), lambda: finish(opened(study), "b")):
        with pytest.raises(DamagedError, match="must be a complete Parquet file") as caught:
            act()
        assert str(file) in str(caught.value)
    assert file.read_bytes() == data


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_the_disk_refuses_is_no_damage(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    (study / "scores" / "000001.parquet").chmod(0)
    with pytest.raises(StudyError) as caught:
        tables(Study.read(study))
    assert not isinstance(caught.value, DamagedError)


def test_a_damaged_manifest_is_damage_and_a_missing_study_is_not(tmp_path: Path) -> None:
    study = _study(tmp_path / "study")
    for text in ("{", "[]", '{"schema": 1}'):
        (study / "study.json").write_text(text)
        with pytest.raises(DamagedError):
            Study.read(study)
    (study / "study.json").write_text('{"schema": 99}')
    for path in (study, tmp_path / "nowhere"):
        with pytest.raises(StudyError) as caught:
            Study.read(path)
        assert not isinstance(caught.value, DamagedError)
