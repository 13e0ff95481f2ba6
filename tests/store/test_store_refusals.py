"""Damaged studies, disks that refuse, folders that are not ours, and names of studies."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from disk_samples import mounted
from store_samples import TABLES, end, finish, opened, points, row, scores, seen, tables

from tune_sentcl.errors import DamagedError, StudyError
from tune_sentcl.store import Study
from tune_sentcl.store.files import StudyFiles


def test_a_read_only_disk_is_read_and_not_written(tmp_path: Path) -> None:
    with opened(tmp_path / "study") as study:
        finish(study, "t1")
    with mounted(tmp_path / "bound", "--bind", str(tmp_path / "study")) as bound:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(bound)], check=True)
        assert len(Study.read(bound).scores()) == 2
        with pytest.raises(StudyError, match="read-only") as caught:
            opened(bound)
        assert str(bound) in str(caught.value)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    with (
        mounted(tmp_path, "-t", "tmpfs", "-o", "size=300k", "none"),
        opened(tmp_path / "study") as driver,
    ):
        finish(driver, "t1")
        many = [replace(p, value=hash(p.step) / 7) for p in points(count=40_000)]
        with pytest.raises(StudyError, match="must have free space") as caught:
            driver.commit(row("t2"), scores(), many)
        assert "curves/000001.parquet" in str(caught.value)
        seen(tmp_path / "study", t1=70.0)
        finish(driver, "t2")


def test_what_is_no_study_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("mine")
    for act in (opened, Study.read):
        for place, rule in ((path, "must be a folder"), (path / "below", ""), (tmp_path, "must")):
            with pytest.raises(StudyError, match=f"{place}.*{rule}"):
                act(place)
    with pytest.raises(StudyError, match="must be a study"):
        Study.read(tmp_path / "missing")
    assert path.read_text() == "mine" and [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _garbled(file: Path) -> None:
    """Whole at both ends, where Parquet looks first."""
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = os.urandom(len(data) // 2 - 4)
    file.write_bytes(bytes(data))


def _no_status(file: Path) -> None:
    pq.write_table(pq.read_table(file).drop_columns(["status"]), file)


def _no_text(file: Path) -> None:
    """A text that is not UTF-8; all that Parquet looks at is whole."""
    file.write_bytes(file.read_bytes().replace(b"spearman", b"spearm\xff\xff"))


WHOLE = "must be a complete Parquet file"


@pytest.mark.parametrize(
    ("name", "damage", "rule"),
    [
        *((name, damage, WHOLE) for name in TABLES for damage in (_cut, _garbled)),
        ("scores", lambda file: file.write_bytes(b""), WHOLE),
        ("scores", _no_text, ""),
        ("trials", _no_status, "must have the columns.*status"),
    ],
)
def test_a_damaged_file_is_named_and_stays(
    name: str, damage: Callable[[Path], Any], rule: str, tmp_path: Path
) -> None:
    with opened(tmp_path) as driver:
        finish(driver, "a", 71.0)
        end(driver, "f", "failed")
    file = tmp_path / name / "000001.parquet"
    damage(file)
    data = file.read_bytes()
    acts: list[Callable[[], object]] = [lambda: tables(Study.read(tmp_path))]
    acts += [lambda: finish(opened(tmp_path), "b")] if rule == WHOLE else []
    for act in acts:
        with pytest.raises(DamagedError, match=rf"{file}.*{rule}"):
            act()
    assert file.read_bytes() == data


def test_a_study_by_a_folder_s_url(tmp_path: Path) -> None:
    with opened(f"file://{tmp_path}/a%20b") as driver:
        finish(driver, "t1")
        assert driver.study.files.folder == tmp_path / "a b"
    assert len(Study.read(tmp_path / "a b").scores()) == 2


@pytest.mark.parametrize("url", ["nosuch://host/x", "file://", "file:/tmp/x", "file://host/tmp/x"])
def test_a_url_of_which_a_part_would_be_dropped_is_refused(url: str) -> None:
    with pytest.raises(StudyError, match="must"):
        StudyFiles.at(url)


@pytest.mark.parametrize(
    ("manifest", "rule"),
    [
        ("", "must be JSON"),
        ("[" * 200_000, "must be JSON"),
        ("[]", "must be an object"),
        ("{}", "schema: must be given.*\n.*space: must be given"),
        ('{"schema": true}', "schema: must be a valid integer"),
        ('{"schema": 3}', "schema = 3: this release reads only studies of schema 1.*release"),
        ({"space": 3}, "space: must be"),
        ({"search": 3}, "search: must be"),
        ({"search": {"sampler_seed": float("inf")}}, "search.sampler_seed: must be"),
        ({"search": {"halvings": [{"shares": [2]}]}}, "search.halvings.0.shares.0: must be"),
    ],
)
def test_a_manifest_damaged_or_of_another_schema(
    tmp_path: Path, manifest: str | dict[str, Any], rule: str
) -> None:
    opened(tmp_path).close()
    path = tmp_path / "study.json"
    text = manifest
    if isinstance(text, dict):
        text = json.dumps({**json.loads(path.read_text()), **text})
    path.write_text(text)
    for act in (opened, Study.read):
        with pytest.raises(StudyError, match=rf"study\.json[^$]*{rule}") as caught:
            act(tmp_path)
        assert isinstance(caught.value, DamagedError) is ("release" not in rule)
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["t1.1.parquet", "000001 (conflict).parquet"])
def test_other_parquet_files_in_a_table_are_refused(tmp_path: Path, name: str) -> None:
    """They are of another version or of a program that syncs, and pandas would read them."""
    opened(tmp_path).close()
    (tmp_path / "trials" / name).write_bytes(b"")
    for act in (lambda: Study.read(tmp_path).trials(), lambda: opened(tmp_path)):
        with pytest.raises(StudyError, match="must hold only parts"):
            act()
