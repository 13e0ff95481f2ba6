"""A study on a real server that speaks S3, whose requests are cut one after another."""

import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from s3_server import Way, make_bucket, s3_server, variables
from store_samples import TABLES, end, finish, opened, tables, weights
from test_store_writer_lock import elsewhere  # noqa: F401 - a fixture

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, StudyDriver, objects, writer_lock
from tune_sentcl.store.files import StudyFiles

BUCKET = "s3://bucket"
MOST = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Way]:
    with s3_server() as way, pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("AWS_")]:
            patch.delenv(name)
        url = f"http://127.0.0.1:{way.port}"
        for name, value in {**variables(url), "no_proxy": "127.0.0.1"}.items():
            patch.setenv(name, value)
        make_bucket(url)
        yield way


@pytest.fixture
def cut_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A request that fails is not sent again."""
    monkeypatch.setattr(objects, "_RETRIES", 0)
    objects._opened.cache_clear()
    yield
    objects._opened.cache_clear()


def test_a_study_in_a_bucket(server: Way) -> None:
    url = f"{BUCKET}/whole/study"
    with pytest.raises(StudyError, match="must be a study"):
        Study.read(url)
    with opened(url) as driver:
        end(driver, "t1", weights="its")
        with pytest.raises(
            StudyError, match=f"another driver writes to this study: process {os.getpid()}"
        ):
            opened(url)
        finish(driver, "t2")
    with opened(url) as driver:
        assert driver.study.manifest.epoch == 2
        end(driver, "t3", "failed")
    read = Study.read(url)
    assert [len(getattr(read, name)()) for name in TABLES] == [3, 4, 9]
    assert read.checkpoints() == {"t1"}
    assert weights(Study.read(url), "t1") == "its"
    with pytest.raises(StudyError, match="must be a study or empty"):
        opened(f"{BUCKET}/whole")
    assert server.seen


def _before(driver: StudyDriver) -> None:
    end(driver, "t1", weights="its")
    end(driver, "t0")
    end(driver, "t2", "failed")


def _copy(name: str, other: str) -> None:
    bucket = StudyFiles.at(BUCKET)
    for found in bucket.below(name):
        copy = f"{other}/{found.removeprefix(f'{name}/')}"
        bucket.replace(copy, bucket.read(found)[0], None)


STEPS: list[Callable[[StudyDriver], object]] = [
    lambda driver: end(driver, "t2", "finished", 2.0, "new", attempt=2),
    lambda driver: end(driver, "t1", "finished", 2.0, "new", attempt=2),
    lambda driver: end(driver, "t3", "finished", 2.0),
]


@pytest.mark.long
@pytest.mark.usefixtures("elsewhere", "cut_at_once")
@pytest.mark.parametrize("step", STEPS, ids=["a repetition", "new weights", "a new trial"])
def test_a_way_cut_at_any_request_shows_what_stood_before_or_after(
    server: Way, step: Callable[[StudyDriver], object]
) -> None:
    place = os.urandom(4).hex()
    with opened(f"{BUCKET}/{place}/before") as driver:
        _before(driver)
        was = tables(driver.study), driver.study.checkpoints()
    _copy(f"{place}/before", f"{place}/after")
    with opened(f"{BUCKET}/{place}/after") as driver:
        step(driver)
        becomes = tables(driver.study), driver.study.checkpoints()
    assert was != becomes
    for allowed in range(MOST):
        url = f"{BUCKET}/{place}/{allowed}"
        _copy(f"{place}/before", f"{place}/{allowed}")
        driver = opened(url)  # whose lease is not refreshed as soon as this
        server.allowed, server.lost_whole = allowed, allowed % 2 == 0
        try:
            step(driver)
            cut = False
        except StudyError:
            cut = True
        driver.close()
        server.allowed = None
        read = Study.read(url)
        assert tables(read)["trials"] in (was[0]["trials"], becomes[0]["trials"])
        assert was[1] & becomes[1] <= read.checkpoints() <= was[1] | becomes[1]
        if not cut:
            break
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer_lock, "_TERM_S", 0.2)
            with opened(url) as second:
                step(second)
        assert (tables(read), read.checkpoints()) == becomes
    assert 2 < allowed < MOST - 1, "it asks, and comes to an end"


def requests(server: Way) -> Counter[str]:
    """What went by since the last call, but for the lease's refreshing, by kind."""
    with server.guard:
        seen = [one.split(" ", 1) for one in server.seen if ".lease" not in one]
        server.seen.clear()
    return Counter("LIST" if "list-type" in path else method for method, path in seen)


def test_requests_are_few_and_do_not_grow_with_the_study(server: Way) -> None:
    url = f"{BUCKET}/counted/study"

    def trial(driver: StudyDriver, name: str, *, keep: bool) -> Counter[str]:
        end(driver, name, weights="its" if keep else "")
        return requests(server)

    requests(server)
    with opened(url) as driver:
        assert requests(server)["LIST"] <= 9
        first = trial(driver, "t0", keep=False)
        assert first == {"PUT": 3}
        assert trial(driver, "w0", keep=True) == {"HEAD": 1, "PUT": 6}
        for number in range(1, 20):
            assert trial(driver, f"t{number}", keep=False) == first
        driver.rewrite(lambda table: table)
        assert not requests(server), "nothing has changed"
    requests(server)
    with opened(url) as driver:
        again = requests(server)
        assert again["LIST"] <= 10 and again["GET"] <= 10
        assert len(driver.study.ended()) == 21


@pytest.mark.usefixtures("server")
def test_what_a_store_refuses_is_said_in_a_sentence() -> None:
    with pytest.raises(StudyError, match=r"s3://nosuch/study") as caught:
        opened("s3://nosuch/study")
    sentence = str(caught.value)
    assert not any(text in sentence for text in ("s3cr3t", "Debug source", "\n"))


def test_what_the_environment_says_of_a_bucket_counts_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a notebook, or for a second server of the same names."""
    clients = []
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:2"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        clients.append(StudyFiles.at(BUCKET).client)
    assert clients[0] is not clients[1] is clients[2]
