"""Files appear whole or not at all, whoever is killed and whoever writes beside."""

import os
import signal
import socket
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import store_children
from processes import child, told
from store_samples import dot_files, finish, opened, row, space

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles


def test_a_killed_worker_leaves_whole_files(tmp_path: Path) -> None:
    done, study = 3, tmp_path / "study"
    opened(study).close()
    with child(store_children, "write_loop", study) as process:
        assert [told(process) for _ in range(done)][-1] == str(done - 1)
        process.send_signal(signal.SIGKILL)
    table = pq.read_table(study / "scores" / "looped.parquet")
    assert len(table) == 2000
    assert len(set(table["value"].to_pylist())) == 1
    assert table["value"][0].as_py() >= done - 1
    with opened(study) as again:
        again.commit(row("looped"))
        assert len(again.study.scores()) == 2000
    assert dot_files(study) == []


def test_a_killed_driver_leaves_a_study_that_goes_on(tmp_path: Path) -> None:
    done, study = 7, tmp_path / "study"
    with child(store_children, "drive", study) as process:
        for _ in range(done):
            told(process)
        process.send_signal(signal.SIGKILL)
    before = Study.read(study).trials()["trial_id"].to_pylist()
    assert len(set(before)) == len(before) >= done + 1
    with opened(study) as again:
        finish(again, "last")
        ids = again.study.trials()["trial_id"].to_pylist()
        assert sorted(ids) == sorted([*before, "last"])
        scored = set(again.study.scores()["trial_id"].to_pylist())
        assert scored == set(ids) - {"again"}
    assert dot_files(study) == []


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with (
        child(store_children, "write_some", tmp_path, "a") as one,
        child(store_children, "write_some", tmp_path, "b") as two,
    ):
        assert told(one) == told(two) == "done"
    with opened(tmp_path) as driver:
        for trial_id in ["shared", *(f"{name}{i}" for name in "ab" for i in range(20))]:
            driver.commit(row(trial_id))
        assert len(driver.study.scores()) == 100 + 2 * 20 * 2
        assert len(driver.study.curves()) == 100


def test_the_second_driver_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with child(store_children, "hold", tmp_path) as process:
        assert told(process) == "open"
        with pytest.raises(StudyError) as caught:
            opened(tmp_path)
        assert f"process {process.pid} on {socket.gethostname()}" in str(caught.value)
        assert len(Study.read(tmp_path).trials()) == 0
        process.send_signal(signal.SIGKILL)
        process.wait()
        opened(tmp_path).close()


def test_the_lock_holds_within_one_process_too(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StudyError, match="another driver"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_only_files_of_dead_writers_are_swept(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with child(store_children, "hold", tmp_path / "other") as process:
        told(process)
        process.kill()
        process.wait()
        dead = process.pid
    host, folder = socket.gethostname(), tmp_path / "scores"
    gone = folder / f".t.parquet.0123abcd.{dead}@{host}"
    alive = folder / f".t.parquet.0123abcd.{os.getpid()}@{host}"
    elsewhere = folder / ".t.parquet.0123abcd.1@another.host"
    old = folder / ".t.parquet.89abcdef.1@another.host"
    strange = folder / ".DS_Store"
    for path in (gone, alive, elsewhere, old, strange):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert len(Study.read(tmp_path).scores()) == 0
    opened(tmp_path).close()
    assert sorted(folder.iterdir()) == sorted([alive, elsewhere, strange])


def test_a_driver_killed_before_study_json_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("")
    (tmp_path / f".study.json.0123abcd.1@{socket.gethostname()}x").write_text("{")
    opened(tmp_path).close()
    assert Study.read(tmp_path).manifest.space == space().name


def test_a_worker_that_does_not_see_the_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="the node that runs the trial"):
        TrialFiles(tmp_path / "nowhere").write_scores("t1", [])
    assert not (tmp_path / "nowhere").exists()
