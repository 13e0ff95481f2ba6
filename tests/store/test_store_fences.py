"""A driver whose lease has expired wakes up in the middle of a write, at each of its writes."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import obstore
import pytest
from s3_server import Way
from store_samples import end, opened, own_folders, row, scores, tables
from table_reader import check
from test_store_s3 import BUCKET, server
from test_store_writer_lock import elsewhere, place, stop

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, StudyDriver, driver_files, writer_lock
from tune_sentcl.store.driver_files import DriverFiles
from tune_sentcl.store.manifest import now
from tune_sentcl.store.progress import SearchProgress
from tune_sentcl.store.trial_folders import TrialFolders

__all__ = ["elsewhere", "place", "server"]

Step = Callable[[StudyDriver], object]
STEPS: dict[str, Step] = {
    "a new trial": lambda d: end(d, "x", "finished", 9.0),
    "a trial that goes on": lambda d: end(d, "b", "finished", 9.0),
    "more scores": lambda d: d.commit(row("a", attempt=9), scores(9.0, 4)),
    "a rewriting": lambda d: d.rewrite(_without_objective),
    "study.json": lambda d: d.record(),
}


def _without_objective(table: Any) -> Any:
    names = table.column_names
    return table.set_column(
        names.index("error_text"), table.field("error_text"), [["late"] * len(table)]
    )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, elsewhere: None) -> None:
    """Small parts, and leases that expire soon, each of another machine."""
    del elsewhere
    monkeypatch.setattr(driver_files, "MAX_TRIALS", 4)
    monkeypatch.setattr(writer_lock, "_TERM_S", 0.1)


@contextmanager
def before_call(
    module: Any, name: str, number: int, act: Callable[[], None]
) -> Iterator[list[int]]:
    """Do something before the n-th call of a function; yields the count of the calls."""
    function, count = getattr(module, name), [0]

    def counted(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] == number:
            act()
        return function(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, counted)
        yield count


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["disk", "store", pytest.param("s3", marks=pytest.mark.long)])
def test_a_driver_that_wakes_up_in_a_write_changes_nothing(
    server: Way, tmp_path: Path, kind: str, step: str
) -> None:
    del server
    # On a disk the driver syncs between each two of its changes.
    module, name = (os, "fsync") if kind == "disk" else (obstore, "put")
    root = {"disk": "", "store": "memory://", "s3": BUCKET}[kind]
    number, count = 0, [0]
    while number <= count[0]:
        number += 1
        where = f"{root}{tmp_path}/{number}"
        count = _wakes_up(where, STEPS[step], module, name, number)
    assert number > 1, "it writes"


def _wakes_up(place: str, step: Step, module: Any, name: str, number: int) -> list[int]:
    first, second = _expired(place), list[StudyDriver]()

    def succeed() -> None:
        second.append(opened(place))
        end(second[0], "c", "finished", 2.0)
        end(second[0], "e", "finished", 2.0)

    with before_call(module, name, number, succeed) as count:
        try:
            step(first)
            failed = ""
        except StudyError as error:
            failed = str(error)
        calls = [count[0]]
    if second:
        # On a disk the last call syncs what was renamed before.
        assert "another driver has taken over" in failed or (module is os and number % 2 == 0)
        with pytest.raises(StudyError, match="another driver has taken over"):
            end(first, "late", "finished", 9.0)
        _ends_all(place, second[0])
    first.close()
    if second:
        _goes_on(place)
    return calls


def _expired(place: str) -> StudyDriver:
    """A driver that has looked whether it has its lease, and was stopped then."""
    first = opened(place)
    end(first, "a", "finished", 1.0)
    end(first, "b", "pruned", 1.0)
    end(first, "c", "failed", 1.0)
    end(first, "d", "finished", 1.0)
    stop(first._lock)
    first._lock._valid_until = float("inf")
    return first


def _ends_all(place: str, second: StudyDriver) -> None:
    """The study is the second driver's, which ends every trial."""
    found = {t["trial_id"]: t for t in tables(second.study)["trials"]}
    names = sorted({*"abcdetuvw", *found})
    for name in names:
        end(second, name, "finished", 3.0, attempt=5)
    second.write_progress(SearchProgress("running", now()))
    assert Study.read(place).manifest.epoch == second.study.manifest.epoch
    second.close()


def _goes_on(place: str) -> None:
    """Each trial is there once, as the second driver has ended it; a third one goes on."""
    if "://" not in place:
        check(Path(place))
        assert own_folders(Path(place)) == []
    with opened(place) as third:
        end(third, "last", "finished", 4.0)
        rows = third.study.trials(["trial_id", "attempt"]).to_pylist()
        ids = [t["trial_id"] for t in rows]
        assert len(set(ids)) == len(ids) and {*"abcdetuvw", "last"} <= set(ids)
        assert {t["attempt"] for t in rows if t["trial_id"] != "last"} == {5}


def test_a_driver_that_wakes_up_deletes_no_weights_of_its_successor(place: str) -> None:
    first, second = _expired(place), list[StudyDriver]()

    def succeed() -> None:
        second.append(opened(place))
        end(second[0], "b", "finished", 2.0, "its")

    with before_call(TrialFolders, "existing", 1, succeed), suppress(StudyError):
        end(first, "b", "failed", 1.0)  # looks for weights of lost attempts behind its row
    with suppress(StudyError):
        first.keep_checkpoints([])
    assert second[0].study.checkpoints() == second[0].checkpoints() == {"b"}
    second[0].close()
    first.close()


@pytest.mark.parametrize("call", ["__init__", "read", "write"])
def test_a_driver_that_wakes_up_as_it_opens_lets_its_successor_be(place: str, call: str) -> None:
    with opened(place) as before:
        end(before, "a")
    second: list[StudyDriver] = []

    def succeed() -> None:
        if not second:  # it calls the same function
            second.append(opened(place))
            end(second[0], "b")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_lock.WriterLock, "_renew_in_background", lambda lock: None)
        refused = pytest.raises(StudyError, match="another driver has taken over")
        with before_call(DriverFiles, call, 1, succeed), refused:
            end(opened(place), "late")
        end(second[0], "c")
        second[0].record()
    assert set(second[0].study.ended()) == {"a", "b", "c"}
    second[0].close()


def test_what_was_not_synced_may_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the machine: files hold what was synced, and renames were not before that."""
    synced: set[int] = set()
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", seen)
    study = tmp_path / "study"
    with opened(study) as driver:
        for name in "abcde":
            end(driver, name, "pruned", 1.0)
            end(driver, name, "finished", 2.0, "its")
        driver.rewrite(_without_objective)
        before = tables(driver.study), driver.checkpoints()
        lost = [p for p in study.rglob("*") if p.is_file() and p.stat().st_ino not in synced]
        copy = tmp_path / "copy"
        shutil.copytree(study, copy)
    for path in lost:
        (copy / path.relative_to(study)).write_bytes(b"")
    assert {p.name for p in lost} <= {"complete", "000001.json"}
    with opened(copy) as again:
        assert (tables(again.study), again.checkpoints()) == before
