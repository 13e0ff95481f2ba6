"""One writer per study: what a driver writes after it lost its lease does not count."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_samples import finish, opened, row, tables

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store import Study, StudyDriver, writer_lock
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import now
from tune_sentcl.store.progress import SearchProgress
from tune_sentcl.store.writer_lock import LEASES, Holder, WriterLock

TERM = 0.6


@pytest.fixture(autouse=True)
def short_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_lock, "_TERM_S", TERM)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lease from here on seems to be of another machine."""
    me = Holder.of_this_process
    monkeypatch.setattr(
        Holder,
        "of_this_process",
        lambda path: replace(me(path), process=f"{os.urandom(4).hex()} 1"),
    )


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder that other machines see, and an object store: both need leases."""
    return f"memory://{tmp_path}" if request.param == "store" else str(tmp_path / "study")


def stop(lock: WriterLock) -> None:
    """No longer renew a lease, like a process that is stopped or cut off."""
    lock._stopped.set()
    lock._thread.join()


@pytest.fixture
def driver(place: str, elsewhere: None) -> Iterator[StudyDriver]:
    """The first driver of a study, which others can see."""
    del elsewhere
    with opened(place) as first:
        yield first


def test_numbers_grow_and_a_lease_given_back_is_taken_at_once(place: str) -> None:
    files, messages = StudyFiles.at(place), list[str]()
    files.make_folders()
    for number in range(1, 4):
        lease = WriterLock(files, messages.append)
        assert lease.lease == number
        lease.check()
        lease.release()
        lease.release()
    assert files.names(LEASES) == ["000003.json"] and messages == []


def test_a_live_holder_keeps_its_lease_and_is_named(place: str, elsewhere: None) -> None:
    del elsewhere
    files, messages = StudyFiles.at(place), list[str]()
    files.make_folders()
    lease = WriterLock(files)

    def say(text: str) -> None:
        messages.append(text)
        lease._renew()  # the lease's own thread may be late on a busy machine

    with pytest.raises(
        StudyError, match=f"another driver writes to this study: process {os.getpid()}"
    ):
        WriterLock(files, say)
    lease.check()
    lease.release()
    assert len(messages) == 1 and "waiting" in messages[0]


def test_a_lease_of_a_dead_process_of_this_machine_is_free_at_once(tmp_path: Path) -> None:
    files, messages = StudyFiles.at(tmp_path), list[str]()
    with subprocess.Popen(["sleep", "600"]) as process:
        lease_of(files, process=writer_lock._process(process.pid), pid=process.pid)
        with pytest.raises(StudyError, match=f"process {process.pid} on "):
            WriterLock(files, messages.append)
        process.kill()
        process.wait()
        lease = WriterLock(files, messages.append)
    assert lease.lease == 2 and messages == []
    lease.release()


def test_one_of_several_waiting_drivers_gets_the_lease(tmp_path: Path, elsewhere: None) -> None:
    del elsewhere
    files, together = StudyFiles.at(tmp_path), threading.Barrier(3)
    lease_of(files, process="another machine")

    def renew(_: str) -> None:
        """Renew the lease of the driver that got one: its own thread may be late."""
        data = files.read_bytes(f"{LEASES}/000002.json")
        if data and (holder := Holder.parse(data)):
            later = replace(holder, beat=holder.beat + 100)
            files.write_bytes(f"{LEASES}/000002.json", writer_lock._encoded(later))

    def wait(_: int) -> WriterLock | None:
        together.wait()
        with suppress(StudyError):
            return WriterLock(files, renew)
        return None

    with ThreadPoolExecutor(3) as pool:
        (held,) = filter(None, pool.map(wait, range(3)))
    assert held.lease == 2
    held.release()


def lease_of(files: StudyFiles, **facts: Any) -> None:
    """Leave the first lease of a study, which nobody renews, to some holder."""
    stop(WriterLock(files))
    data = files.read_bytes(f"{LEASES}/000001.json")
    holder = Holder.parse(data or b"")
    assert holder is not None
    files.write_bytes(f"{LEASES}/000001.json", writer_lock._encoded(replace(holder, **facts)))


def test_a_driver_without_lease_stops_at_the_next_write(place: str, driver: StudyDriver) -> None:
    finish(driver, "t1")
    stop(driver._lock)
    with opened(place) as second:
        finish(second, "t2", 80.0)
        before = tables(second.study)
        acts: list[Callable[[], None]] = [
            lambda: driver.commit(row("t3")),
            lambda: driver.rewrite(lambda table: table),
            driver.record,
            lambda: driver.keep_checkpoints([]),
            lambda: driver.drop_state("t2"),
            lambda: driver.write_progress(SearchProgress("interrupted", now())),
        ]
        second.write_progress(SearchProgress("running", now(), total=2))
        for act in acts:
            with pytest.raises(StudyError, match="another driver has taken over: process"):
                act()
        driver.close()
        assert tables(Study.read(place)) == before
        said = SearchProgress.read(second.study.files)
        assert said is not None and (said.state, said.total) == ("running", 2)
        second.commit(row("t3"))
    assert len(Study.read(place).trials()) == 3


def test_a_lease_that_could_not_be_taken_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, versions, count = StudyFiles.at(tmp_path), StudyFiles.versions, [0]

    def fails(disk: StudyFiles, folder: str) -> dict[str, Any]:
        count[0] += 1
        if count[0] == 2:
            raise StudyError(Fault("disk", rule="Input/output error", move="Look."))
        return versions(disk, folder)

    with monkeypatch.context() as patch:
        patch.setattr(StudyFiles, "versions", fails)
        with pytest.raises(StudyError):
            WriterLock(files)
    told = list[str]()
    WriterLock(files, told.append).release()
    assert told == []
