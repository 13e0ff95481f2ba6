"""Weights and states are there whole or not at all, and nobody deletes what he should not."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stops import Stopped, writes
from store_samples import end, opened, row, weigh, weights

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles


def _says(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "state").write_text(text)

    return write


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path}" if request.param == "store" else str(tmp_path / "study")


def test_weights_count_from_the_commit_of_their_attempt_on(place: str) -> None:
    with opened(place) as driver:
        end(driver, "t1", weights="old")
        lost, label = driver.next_attempt_label("t1"), driver.next_attempt_label("t1")
        weigh(driver, "t1", lost, "lost")
        weigh(driver, "t1", label, "new")
        assert weights(driver.study, "t1") == "old"
        assert driver.study.checkpoints() == driver.checkpoints() == {"t1"}
        end(driver, "t1", weights="newer")
        assert weights(driver.study, "t1") == "newer"
        assert driver.study.files.names("checkpoints") == ["t1.1-4"]


def test_weights_of_attempts_that_no_row_names_go_when_a_driver_opens(place: str) -> None:
    with opened(place) as driver:
        end(driver, "t1", weights="its")
        end(driver, "t2", "pruned")
        for files in (TrialFiles(place), driver.study):
            with pytest.raises(StudyError, match="t2"), files.checkpoint("t2"):
                pass
        for name, label in (("t1", "1-9"), ("t2", "1-1"), ("t3", "1-1")):
            weigh(driver, name, label, "lost")
        assert driver.study.checkpoints() == {"t1"}
    opened(place).close()
    assert Study.read(place).files.names("checkpoints") == ["t1.1-1"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(OSError(28, "No space left"), StudyError), (TypeError("no JSON"), TypeError)],
)
def test_what_cannot_be_written_leaves_the_old_one(
    place: str, error: Exception, kind: type[Exception]
) -> None:
    def refuse(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    with opened(place) as driver:
        end(driver, "t1", weights="old")
        files = TrialFiles(place, driver.next_attempt_label("t1"))
        files.write_state("t1", _says("old"))
        for write in (files.write_checkpoint, files.write_state):
            with pytest.raises(kind, match=r"must have free space|no JSON"):
                write("t1", refuse)
        assert weights(driver.study, "t1") == "old"
        assert driver.study.state_file("t1", "state") == b"old"


def test_a_worker_killed_at_any_write_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    opened(tmp_path / "0").close()

    def save(path: Path, attempt: str, text: str) -> None:
        files = TrialFiles(path, attempt)
        files.write_state("t1", _says(text))

    save(tmp_path / "0", "1-1", "old")
    allowed, stopped, found = 0, True, []
    while stopped:
        path = tmp_path / "killed"
        shutil.copytree(tmp_path / "0", path)
        stopped = False
        try:
            with writes(path, allowed):
                save(path, "1-2", "new")
        except Stopped:
            stopped = True
        with opened(path) as driver:
            found.append(driver.study.state_file("t1", "state"))
            save(path, "2-1", "newer")
            assert driver.study.state_file("t1", "state") == b"newer"
            assert driver.study.files.names("states") == ["t1.2-1.1"]
        shutil.rmtree(path)
        allowed += 1
    assert found == sorted(found, key=lambda text: text != b"old")
    assert set(found) == {b"old", b"new"}


def test_weights_go_unless_they_are_named_under_way_or_kept_by_a_repetition(place: str) -> None:
    with opened(place) as driver:
        for trial_id in ("t1", "t2", "t3"):
            end(driver, trial_id, weights=trial_id)
        label = driver.next_attempt_label("under-way")
        weigh(driver, "under-way", label, "its")
        driver.keep_checkpoints(["t2", "t3"])
        assert driver.study.checkpoints() == {"t2", "t3"}
        driver.commit(replace(row("under-way"), attempt_files=label))
        assert driver.study.checkpoints() == {"t2", "t3", "under-way"}
        again = replace(row("t2"), attempt_files=driver.next_attempt_label("t2"))
        driver.commit(again, weights=False)
        assert driver.study.checkpoints() == {"t3", "under-way"}


def test_states_of_a_trial_go_with_it(place: str) -> None:
    with opened(place) as driver:
        for label in ("1-1", "1-2"):
            TrialFiles(place, label).write_state("t1", lambda folder: None)
        TrialFiles(place).write_state("t10", lambda folder: None)
        assert driver.study.files.names("states") == ["t1.1-2.1", "t10.1-1.1"]
        driver.drop_state("t1")
        assert driver.study.states() == {"t10"}
