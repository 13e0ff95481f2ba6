"""One driver after another, with what came between: copies, late writers, failures half way."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_samples import opened, row, scores, weigh
from test_store_writer_lock import (
    TERM,
    elsewhere,  # noqa: F401 - a fixture
    end,
    leased,
    seen,
    short_terms,  # noqa: F401 - a fixture
    stop,
    taken_over,
)

from tune_sentcl.errors import StudyError
from tune_sentcl.store import TrialFiles
from tune_sentcl.store.disk import DiskStorage, is_shared
from tune_sentcl.store.files import StudyFiles


def test_an_older_manifest_hides_no_later_row(tmp_path: Path) -> None:
    study, copy = tmp_path / "study", tmp_path / "study.json"
    with opened(study) as driver:
        end(driver, "a", "finished", 1.0)
    shutil.copy(study / "study.json", copy)
    for name in "bc":
        with opened(study) as driver:
            end(driver, name, "finished", 2.0)
            driver.compact()
    shutil.copy(copy, study / "study.json")
    with opened(study) as driver:
        end(driver, "d", "finished", 3.0)
        seen(str(study), a=1.0, b=2.0, c=2.0, d=3.0)
        driver.compact()
    seen(str(study), a=1.0, b=2.0, c=2.0, d=3.0)


@pytest.mark.usefixtures("elsewhere")
def test_a_row_that_came_late_keeps_its_scores(tmp_path: Path) -> None:
    place = str(tmp_path)
    with opened(place) as driver:
        end(driver, "x", "failed", 1.0)
    first = opened(place)
    first.share()
    stop(first._lock)
    with taken_over(place) as second:
        first._lock._valid_until = float("inf")
        end(first, "x", "finished", 2.0)
        end(second, "y", "finished", 3.0)
        second.compact()
        seen(place, x=2.0, y=3.0)
    first.close()


@pytest.mark.usefixtures("elsewhere")
def test_a_driver_that_shares_late_notices_an_earlier_writer(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        with taken_over(str(tmp_path)) as second:
            end(second, "a", "finished", 1.0)
        with pytest.raises(StudyError, match="another driver has written this study"):
            first.share()
    seen(str(tmp_path), a=1.0)


@pytest.mark.usefixtures("elsewhere")
def test_a_study_that_had_a_lease_always_needs_one(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        driver.share()
    with opened(tmp_path), pytest.raises(StudyError, match="another driver has this study"):
        taken_over(str(tmp_path))


@pytest.mark.usefixtures("elsewhere")
def test_one_slow_read_takes_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = StudyFiles.at(tmp_path)
    lease, read, slow = leased(files), DiskStorage.read, [True]

    def hangs(disk: DiskStorage, name: str) -> bytes:
        data = read(disk, name)
        if slow:
            slow.clear()
            time.sleep(TERM + 0.1)
        return data

    monkeypatch.setattr(DiskStorage, "read", hangs)
    with pytest.raises(StudyError, match="another driver has this study"):
        leased(files)
    lease.check()
    lease.release()


@pytest.mark.parametrize("call", ["versions", "fsync"])
def test_a_lease_that_could_not_be_taken_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    files, versions, count = StudyFiles.at(tmp_path), DiskStorage.versions, [0]

    def fails(disk: DiskStorage, folder: str) -> dict[str, Any]:
        count[0] += 1
        if count[0] == 2:
            raise OSError(5, "Input/output error")
        return versions(disk, folder)

    def full(descriptor: int) -> None:
        raise OSError(28, f"No space left on device: {descriptor}")

    with monkeypatch.context() as patch:
        if call == "versions":
            patch.setattr(DiskStorage, "versions", fails)
        else:
            patch.setattr(os, "fsync", full)
        with pytest.raises(StudyError):
            leased(files)
    told = list[str]()
    leased(files, told.append).release()
    assert told == []


def test_a_copy_of_a_study_that_runs_is_nobody_s(tmp_path: Path) -> None:
    with opened(tmp_path / "study") as driver:
        driver.share()
        end(driver, "a", "finished", 1.0)
        shutil.copytree(tmp_path / "study", tmp_path / "copy")
        with opened(tmp_path / "copy") as copy:
            end(copy, "b", "finished", 2.0)
    seen(str(tmp_path / "copy"), a=1.0, b=2.0)


def test_weights_of_a_lost_attempt_go_with_its_trial_s_end(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        weigh(TrialFiles(tmp_path, driver.next_attempt_label("a")), "a", "lost")
        label = driver.next_attempt_label("a")
        weigh(TrialFiles(tmp_path, label), "a", "kept")
        TrialFiles(tmp_path, label).write_scores("a", scores())
        driver.commit(_named(label))
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["a"]
        assert (tmp_path / "checkpoints/a/model.safetensors").read_text() == "kept"


def _named(label: str) -> Any:
    return replace(row("a"), attempt_files=label)


def test_a_study_that_was_copied_to_a_store_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "study") as driver:
        end(driver, "a", "finished", 1.0)
        weigh(TrialFiles(tmp_path / "study"), "a", "its")
        weigh(TrialFiles(tmp_path / "study", "9-9"), "b", "waiting")
    there = StudyFiles.at(f"memory://{tmp_path}")
    for path in (tmp_path / "study").rglob("*"):
        if path.is_file():
            there.write_bytes(path.relative_to(tmp_path / "study").as_posix(), path.read_bytes())
    with opened(there.where) as driver:
        assert driver.study.checkpoints() == set()
        end(driver, "b", "finished", 2.0)
    seen(there.where, a=1.0, b=2.0)
    assert there.exists("checkpoints/a/1_Pooling/config.json")


@pytest.mark.parametrize("mark", ["", "checkpoints/", "states/", "trials/", ".lease/"])
def test_marks_of_file_browsers_do_no_harm(tmp_path: Path, mark: str) -> None:
    there = StudyFiles.at(f"memory://{tmp_path}/{mark}")
    if mark:
        there.write_bytes(mark.rstrip("/") + "/", b"")
    there.write_bytes("checkpoints/.DS_Store", b"")
    with opened(f"memory://{tmp_path}/x") as driver:
        driver.study.files.write_bytes("checkpoints/.DS_Store", b"")
        end(driver, "a", "finished", 1.0)
        driver.compact()
    with opened(f"memory://{tmp_path}/x") as driver:
        assert driver.study.checkpoints() == set()


@pytest.mark.parametrize("url", ["nosuch://host/x", "file://", "file:/tmp/x", "file://host/tmp/x"])
def test_a_url_of_which_a_part_would_be_dropped_is_refused(url: str) -> None:
    with pytest.raises(StudyError, match="must"):
        StudyFiles.at(url)


def test_a_link_leads_to_the_disk_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "größe").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "größe")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {tmp_path}/größe rw - nfs4 x rw\n")
    monkeypatch.setattr("tune_sentcl.store.disk._MOUNTS", mounts)
    assert is_shared(tmp_path / "link/study")
    assert not is_shared(tmp_path)
