"""A process that is killed leaves a whole study, which a reader of plain Parquet may read."""

import signal
import socket
from pathlib import Path

import pytest
import store_children
from processes import child, told
from store_samples import end, finish, opened, own_folders, space
from table_reader import reading

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles


def test_a_killed_driver_leaves_a_study_that_goes_on(tmp_path: Path) -> None:
    done, study = 30, tmp_path / "study"
    opened(study).close()
    with reading(study):
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
    assert own_folders(study) == []


def test_the_second_driver_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with child(store_children, "hold", tmp_path) as process:
        assert told(process) == "open"
        with pytest.raises(StudyError) as caught:
            opened(tmp_path)
        assert f"process {process.pid} on {socket.gethostname()}" in str(caught.value)
        assert len(Study.read(tmp_path).trials()) == 0
        process.send_signal(signal.SIGKILL)
        process.wait()
        with opened(tmp_path), pytest.raises(StudyError, match="another driver"):
            opened(tmp_path)


def test_a_driver_killed_before_study_json_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / ".lease").mkdir()
    (tmp_path / ".driver-000000-0123abcd").mkdir()
    (tmp_path / ".driver-000000-0123abcd" / "study.json").write_text("{")
    with opened(tmp_path) as driver:
        assert len(own_folders(tmp_path)) == 1, "its own folder alone"
        end(driver, "t1")
    assert Study.read(tmp_path).manifest.space == space().name


def test_a_worker_that_does_not_see_the_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="the node that runs the trial"):
        TrialFiles(tmp_path / "nowhere").write_checkpoint("t1", lambda folder: None)
    assert not (tmp_path / "nowhere").exists()
