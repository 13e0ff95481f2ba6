"""At whatever write somebody is killed, a reader sees what stood before or what comes after."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from stops import Stopped, bury, writes
from store_samples import (
    dot_files,
    opened,
    points,
    row,
    scores,
    tables,
    weigh,
    worker,
)

from tune_sentcl.store import Study, StudyDriver

Step = Callable[[StudyDriver], None]


@pytest.fixture(autouse=True, scope="module")
def small_segments() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("driver", "compaction"):
            patch.setattr(f"tune_sentcl.store.writing.{module}.TRIALS_PER_SEGMENT", 3)
        yield


def _renamed(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("objective_name")
    names = pa.array(["other"] * len(table), pa.string())
    return table.set_column(place, table.schema.field(place), names)


def _first(driver: StudyDriver) -> None:
    worker(driver).write_scores("a", scores(1.0))
    worker(driver).write_curves("a", points(1.0))
    worker(driver).write_curves("c", points(3.0))
    worker(driver).write_scores("f", scores(6.0))
    driver.commit(row("a"))
    driver.commit(row("b", "failed"))


def _second(driver: StudyDriver) -> None:
    worker(driver).write_scores("b", scores(2.0))
    worker(driver).write_curves("b", [])
    driver.commit(row("b", attempt=2))
    worker(driver).add_scores("a", scores(1.5, 3))
    driver.commit(row("f"), ["a"])


def _third(driver: StudyDriver) -> None:
    worker(driver).write_curves("a", points(1.7))
    driver.commit(row("a", attempt=3))
    worker(driver).write_scores("g", scores(9.0))


def _fourth(driver: StudyDriver) -> None:
    weigh(worker(driver), "a", "old")
    weigh(worker(driver), "b", "b's")
    weigh(worker(driver), "under-way", "its")


def _nothing(driver: StudyDriver) -> None:
    del driver


# What happens before, undisturbed; then what is killed.
STORY: list[tuple[Step, Step]] = [
    (_nothing, lambda d: worker(d).write_scores("a", scores(0.5))),
    (_first, lambda d: d.commit(row("c", "pruned"), ["f"])),  # gathers a, b and c
    (_nothing, lambda d: d.commit(row("a", attempt=2))),
    (_second, lambda d: d.commit(row("d", "failed"), ["a"])),  # b, f and d, but not a's scores
    (_nothing, lambda d: worker(d).add_scores("a", scores(1.6, 1))),
    (_nothing, lambda d: d.compact(running=["a"])),
    (_third, lambda d: d.commit(row("g", "failed"))),
    (_nothing, lambda d: d.commit(row("e"))),  # gathers a, g and e
    (_nothing, lambda d: d.compact(_renamed)),
    (_fourth, lambda d: weigh(worker(d), "a", "new")),
    (_nothing, lambda d: d.keep_checkpoints(["b", "under-way"])),
]


def _seen(path: Path) -> tuple[object, set[str]]:
    study = Study.read(path)
    return tables(study), study.checkpoints()


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, small_segments: None
) -> list[tuple[Path, Path]]:
    """The study before and after each step that is killed, undisturbed."""
    del small_segments
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
    assert {name: trials[name]["status"] for name in trials} == {
        "a": "finished",
        "b": "finished",
        "c": "pruned",
        "d": "failed",
        "e": "finished",
        "f": "finished",
        "g": "failed",
    }
    assert trials["a"]["attempt"] == 3
    assert {trial["objective_name"] for trial in trials.values()} == {"other"}
    found = sorted((s["trial_id"], s["task"], s["value"]) for s in last.scores().to_pylist())
    assert found == [
        ("a", "STS12", 1.0),
        ("a", "STS13", 1.0),
        ("a", "STS14", 1.5),
        ("b", "STS12", 2.0),
        ("b", "STS13", 2.0),
        ("f", "STS12", 6.0),
        ("f", "STS13", 6.0),
    ]
    drawn = {(p["trial_id"], p["value"]) for p in last.curves().to_pylist()}
    assert drawn == {("a", 1.7), ("c", 3.0)}
    assert last.checkpoints() == {"b", "under-way"}
    for folder in ("trials", "scores", "curves"):
        (name,) = last.files.names(folder)
        assert re.fullmatch(r"all\.[0-9]+\.parquet", name)


@pytest.mark.parametrize("number", range(len(STORY)))
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
        seen, _ = _seen(path)
        assert seen in (was, becomes)
        bury(path)
        with opened(path) as driver:
            assert had & has <= driver.study.checkpoints() <= had | has
            assert dot_files(path) == []
            step(driver)
        assert _seen(path) == (becomes, has)
        allowed += 1
    assert allowed > 2, "it writes"


def _killed(path: Path, step: Step, allowed: int) -> bool:
    with opened(path) as driver:
        try:
            with writes(path, allowed):
                step(driver)
        except Stopped:
            return True
    return False
