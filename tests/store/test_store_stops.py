"""At whatever write a driver is killed, a reader sees what stood before or what comes after."""

import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import store_children
from processes import child, told
from stops import Stopped, writes
from store_samples import end, finish, opened, own_folders, points, row, scores, space, tables
from table_reader import check, reading

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, StudyDriver, TrialFiles, driver_files

Step = Callable[[StudyDriver], object]


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_files, "MAX_TRIALS", 3)
        yield


def _renamed(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("objective_name")
    names = pa.array(["other"] * len(table), pa.string())
    return table.set_column(place, table.schema.field(place), names)


def _first(driver: StudyDriver) -> None:
    end(driver, "a", "finished", 1.0, "a's")
    end(driver, "b", "failed", 2.0)
    end(driver, "c", "pruned", 3.0)
    end(driver, "f", "finished", 6.0, "f's")


def _again(driver: StudyDriver) -> None:
    driver.commit(row("a", attempt=2), scores(1.5, 3))


def _nothing(driver: StudyDriver) -> None:
    del driver


# What happens before, undisturbed; then what is killed.
STORY: list[tuple[Step, Step]] = [
    (_nothing, lambda d: end(d, "a", "finished", 1.0)),
    (_first, lambda d: end(d, "b", "finished", 2.5)),  # in a part that is closed
    (_nothing, lambda d: end(d, "c", "pruned", 3.5)),
    (_nothing, _again),  # scores are added
    (_nothing, lambda d: end(d, "d", "failed", 4.0)),
    (_nothing, lambda d: end(d, "e", "finished", 5.0, "e's")),  # opens a part of its scores
    (_nothing, lambda d: d.commit(row("g"), scores(7.0), points(7.0, 0))),
    (_nothing, lambda d: d.rewrite(_renamed)),
    (_nothing, lambda d: end(d, "f", "finished", 6.5, "f's new")),
    (_nothing, lambda d: d.keep_checkpoints(["f"])),
]


def _seen(path: Path) -> tuple[dict[str, list[dict[str, Any]]], set[str]]:
    return tables(Study.read(path)), Study.read(path).checkpoints()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, small_parts: None) -> list[tuple[Path, Path]]:
    """The study before and after each step that is killed, undisturbed."""
    del small_parts
    path = tmp_path_factory.mktemp("story")
    last = path / "0"
    found: list[tuple[Path, Path]] = []
    opened(last).close()
    for number, (prepare, step) in enumerate(STORY, 1):
        before, after = path / f"{number} before", path / f"{number} after"
        for source, target, act in ((last, before, prepare), (before, after, step)):
            shutil.copytree(source, target)
            with opened(target) as driver:
                act(driver)
        found.append((before, after))
        last = after
    return found


def test_the_story_ends_as_it_should(story: list[tuple[Path, Path]]) -> None:
    last = Study.read(story[-1][1])
    trials = {t["trial_id"]: t for t in last.trials().to_pylist()}
    statuses = {name: trial["status"] for name, trial in trials.items()}
    assert statuses == {**dict.fromkeys("abefg", "finished"), "c": "pruned", "d": "failed"}
    assert trials["a"]["attempt"] == 2
    assert {trials[name]["objective_name"] for name in "abcdeg"} == {"other"}
    found = {(s["trial_id"], s["task"], s["value"]) for s in last.scores().to_pylist()}
    of_two = {(n, t, v) for n, v in zip("abeg", (1.0, 2.5, 5.0, 7.0), strict=True) for t in "23"}
    assert {(n, t[-1], v) for n, t, v in found if n != "f" and t != "STS14"} == of_two
    assert ("a", "STS14", 1.5) in found
    # The weights are the same, so the first values stay.
    assert {v for n, _, v in found if n == "f"} == {6.0}
    drawn = {(p["trial_id"], p["value"]) for p in last.curves().to_pylist()}
    assert drawn == set(zip("abcdef", (1.0, 2.5, 3.5, 4.0, 5.0, 6.5), strict=True))
    assert last.checkpoints() == {"f"}


@pytest.mark.parametrize(
    "number",
    [pytest.param(i, marks=[pytest.mark.long] * (i % 3 > 0)) for i in range(len(STORY))],
)
def test_a_kill_at_any_write_shows_what_stood_before_or_after(
    tmp_path: Path, story: list[tuple[Path, Path]], number: int
) -> None:
    (before, after), (_, step) = story[number], STORY[number]
    (was, had), (becomes, has) = _seen(before), _seen(after)
    allowed, stopped = 0, True
    while stopped:
        path = tmp_path / str(allowed)
        shutil.copytree(before, path)
        stopped = _killed(path, step, allowed)
        check(path)
        now = tables(Study.read(path))["trials"]
        assert {t["trial_id"] for t in was["trials"]} <= {t["trial_id"] for t in now}
        assert all(trial in was["trials"] + becomes["trials"] for trial in now)
        with opened(path) as driver:
            assert had & has <= driver.study.checkpoints() <= had | has
            step(driver)
            check(path)
        assert _seen(path) == (becomes, has)
        assert own_folders(path) == []
        allowed += 1
    assert allowed > 2, "it writes"


def _killed(path: Path, step: Step, allowed: int) -> bool:
    driver = opened(path)
    try:
        with writes(path, allowed):
            step(driver)
    except Stopped:
        driver._lock.release()  # as the system does; the rest stays
        return True
    driver.close()
    return False


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
