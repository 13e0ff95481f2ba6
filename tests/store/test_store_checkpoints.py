"""Weights are there whole or not at all, and nobody deletes what he should not."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from stops import Stopped, bury, writes
from store_samples import dot_files, finish, opened, weigh, weights, worker

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    opened(tmp_path).close()
    files = TrialFiles(tmp_path)
    for text in ("old", "new"):
        weigh(files, "t1", text)
        assert weights(files, "t1") == text
    assert Study.read(tmp_path).checkpoints() == {"t1"}
    assert dot_files(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [(OSError(28, "No space left"), StudyError), (TypeError("no JSON"), TypeError)],
)
def test_what_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, error: Exception, kind: type[Exception]
) -> None:
    def refuse(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    opened(tmp_path).close()
    files = TrialFiles(tmp_path)
    weigh(files, "t1", "old")
    with pytest.raises(kind, match=r"No space left|no JSON"):
        files.write_checkpoint("t1", refuse)
    assert weights(files, "t1") == "old"
    assert dot_files(tmp_path) == []


def test_a_worker_killed_at_any_write_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    opened(tmp_path / "0").close()
    weigh(TrialFiles(tmp_path / "0"), "t1", "old")
    allowed, stopped, found = 0, True, []
    while stopped:
        path = tmp_path / "killed"
        shutil.copytree(tmp_path / "0", path)
        stopped = False
        try:
            with writes(path, allowed):
                weigh(TrialFiles(path), "t1", "new")
        except Stopped:
            stopped = True
        bury(path)
        opened(path).close()
        found.append(weights(TrialFiles(path), "t1"))
        assert dot_files(path) == []
        assert [p.name for p in (path / "checkpoints").iterdir()] == ["t1"]
        shutil.rmtree(path)
        allowed += 1
    assert found == sorted(found, reverse=True)
    assert set(found) == {"old", "new"}


def test_only_those_that_are_named_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as driver:
        for trial_id in ("t1", "t2", "under-way", "orphan"):
            weigh(worker(driver), trial_id, trial_id)
        finish(driver, "t1")
        driver.compact()
        finish(driver, "t2")
        driver.keep_checkpoints(["t2", "under-way"])
        assert driver.study.checkpoints() == {"t2", "under-way"}
        assert dot_files(tmp_path) == []


def test_only_folders_of_the_dead_are_swept(tmp_path: Path) -> None:
    opened(tmp_path).close()
    weigh(TrialFiles(tmp_path), "t1", "its")
    with subprocess.Popen(["true"]) as process:
        dead = process.pid
    host, folder = socket.gethostname(), tmp_path / "checkpoints"
    gone = folder / f".t2.0123abcd.{dead}@{host}"
    alive = folder / f".t2.0123abcd.{os.getpid()}@{host}"
    elsewhere = folder / ".t2.0123abcd.1@another.host"
    unnamed = folder / ".t2.x1y2z3"
    old = folder / ".t2.a4b5c6"
    for path in (gone, alive, elsewhere, unnamed, old):
        path.mkdir()
        (path / "model.safetensors").write_text("half")
    os.utime(old, (0, 0))
    assert Study.read(tmp_path).checkpoints() == {"t1"}
    opened(tmp_path).close()
    assert set(folder.iterdir()) == {folder / "t1", alive, elsewhere, unnamed}


def test_weights_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StudyError, match="t1"), TrialFiles(tmp_path).checkpoint("t1"):
        pass
