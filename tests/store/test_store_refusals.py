"""Damaged studies, disks that refuse, and folders that are none of ours."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from disk_samples import mounted
from store_samples import finish, opened, points, row, scores, seen

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study


def test_a_read_only_disk_is_read_and_not_written(tmp_path: Path) -> None:
    with opened(tmp_path / "study") as study:
        finish(study, "t1")
    with mounted(tmp_path / "bound", "--bind", str(tmp_path / "study")) as bound:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(bound)], check=True)
        assert len(Study.read(bound).scores()) == 2
        with pytest.raises(StudyError, match="read-only") as caught:
            opened(bound)
        assert str(bound) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    opened(tmp_path / "study").close()
    (tmp_path / "study").chmod(0o555)
    try:
        with pytest.raises(StudyError, match="allowed"):
            opened(tmp_path / "study")
    finally:
        (tmp_path / "study").chmod(0o755)


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


def test_a_file_where_the_study_should_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    for act in (opened, Study.read):
        with pytest.raises(StudyError, match="must be a folder"):
            act(path)
        with pytest.raises(StudyError):
            act(path / "below")
    assert path.read_text() == "mine"


def test_a_folder_of_other_things_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for act in (opened, Study.read):
        with pytest.raises(StudyError) as caught:
            act(tmp_path)
        assert str(tmp_path) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_reading_nothing_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="must be a study"):
        Study.read(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must be JSON"),
        ('{"schema": 1', "must be JSON"),
        ("\x00", "must be JSON"),
        ("[" * 200_000, "must be JSON"),
        ("[]", "must be an object"),
        ("{}", "schema: must be given.*\n.*space: must be given"),
        ('{"schema": true}', "schema: must be a valid integer"),
        ('{"schema": 3}', "schema = 3: this release reads studies of schema 1 only.*release"),
    ],
)
def test_a_manifest_damaged_or_of_another_schema(tmp_path: Path, text: str, rule: str) -> None:
    opened(tmp_path).close()
    (tmp_path / "study.json").write_text(text)
    for act in (opened, Study.read):
        with pytest.raises(StudyError, match=rule) as caught:
            act(tmp_path)
        assert "study.json" in str(caught.value)
    assert (tmp_path / "study.json").read_text() == text


@pytest.mark.parametrize(
    "key", ["space", "space_texts", "created", "versions", "commands", "search", "plan"]
)
def test_every_fault_of_a_manifest_is_named(tmp_path: Path, key: str) -> None:
    opened(tmp_path).close()
    path = tmp_path / "study.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: 3}))
    with pytest.raises(StudyError, match=f"study.json: {key}: must be"):
        Study.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"sampler_seed": float("inf")}, "sampler_seed"),
        ({"shares": [2]}, "shares.0"),
        ({"seed_plan": {"seeds": [0.5], "configurations": None}}, "seed_plan.seeds.0"),
    ],
)
def test_a_damaged_record_of_a_search_is_named(
    tmp_path: Path, change: dict[str, Any], key: str
) -> None:
    opened(tmp_path).close()
    path = tmp_path / "study.json"
    record = {"objectives": [], "learned_from": [], "sampler": "tpe", "sampler_seed": 0, **change}
    path.write_text(json.dumps({**json.loads(path.read_text()), "search": record}))
    with pytest.raises(StudyError, match=rf"study\.json: search\.{key}: must be"):
        Study.read(tmp_path)


def test_a_table_without_its_key_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        finish(driver, "t1")
    file = tmp_path / "trials" / "000001.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["status"]), file)
    with pytest.raises(StudyError, match=r"000001\.parquet: must have the columns.*status"):
        Study.read(tmp_path).trials()
