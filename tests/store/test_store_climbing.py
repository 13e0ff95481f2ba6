"""Names lead nowhere but into their study: ids, labels, links, pointers, objects of a store."""

import http.client
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_server import Way
from store_samples import end, finish, opened, space, tables
from test_store_s3 import BUCKET, server

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles

__all__ = ["server"]

CLIMBING = ("../x", "..", "", "/etc/x", "a/../../b", "a\\b", "a\0b", "a\n", "~", ".t", "a.1-1")
OURS = (".lease", "study.json", "trials", "scores", "curves", "checkpoints", "states")


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("write", [TrialFiles.write_checkpoint, TrialFiles.write_state])
def test_ids_labels_and_names_of_spaces_are_no_paths(
    tmp_path: Path, write: Callable[[TrialFiles, str, Callable[[Path], None]], None]
) -> None:
    path, out = tmp_path / "a" / "study", "../../../out"
    with opened(path, space=space(out, f"name = '{out}'\n")) as driver:
        finish(driver, "t1")
    before = below(tmp_path)
    assert {name.split("/")[0] for name in before} == {"a"}
    for bad in CLIMBING:
        with pytest.raises(ValueError, match="must have letters, digits"):
            write(TrialFiles(path), bad, lambda folder: None)
        with pytest.raises(ValueError, match="must be EPOCH-TRY"):
            write(TrialFiles(path, bad), "t1", lambda folder: None)
    assert below(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "there"), [*((name, True) for name in OURS), (".lease", False), ("trials", False)]
)
def test_a_link_in_a_study_s_place_is_refused_and_what_it_leads_to_stays(
    tmp_path: Path, name: str, there: bool
) -> None:
    path, other = tmp_path / "study", tmp_path / "other"
    with opened(path) as driver:
        finish(driver, "t1")
    other.mkdir()
    (other / "all.parquet").write_text("mine")
    target = other / ("000001.json" if name.startswith(".") or "." in name else "")
    if target != other:
        target.write_text('{"mine": 1}')
    link = path / name
    if link.exists():
        link.rename(path / "was")
    link.symlink_to(target if there else tmp_path / "nowhere")
    held = {p: p.read_bytes() for p in other.iterdir()}
    with pytest.raises(StudyError) as caught:
        opened(path)
    assert "\n" not in str(caught.value)
    assert {p: p.read_bytes() for p in other.iterdir()} == held
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["checkpoints", "states"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_place_of_a_trial_s_folder_is_replaced_and_its_target_stays(
    tmp_path: Path, kind: str, there: bool
) -> None:
    path, other = tmp_path / "study", tmp_path / "other"
    opened(path).close()
    other.mkdir()
    (other / "mine").write_text("mine")
    (other / "complete").write_text("mine")
    folder = path / kind
    folder.mkdir(exist_ok=True)
    links = [folder / name for name in ("t1.2-1", "t1.2-1.1", "t2.1-1", "t2.1-1.1")]
    with opened(path) as driver:
        for link in links:
            link.symlink_to(other if there else tmp_path / "nowhere")
        end(driver, "t1", weights="its")
        TrialFiles(path, "2-1").write_state("t1", lambda state: None)
        own = links[kind == "states"]
        assert own.is_dir() and not own.is_symlink()
        driver.drop_state("t2")
    opened(path).close()
    assert {p.name for p in other.iterdir()} == {"mine", "complete"}
    assert not (tmp_path / "nowhere").exists()


def put(server: Way, key: str, data: bytes = b"climbed") -> None:
    """Put an object under a key that no client would take, as whoever may write there can."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server)
    connection.request("PUT", f"/bucket/{key}", data)
    assert connection.getresponse().status == 200
    connection.close()


def stored(name: str) -> tuple[str, str]:
    """A study with the weights of one trial, and where those lie."""
    url = f"{BUCKET}/{name}/a/b/study"
    with opened(url) as driver:
        end(driver, "t1", weights="its")
    return url, f"{name}/a/b/study/checkpoints/t1.1-1"


@pytest.mark.parametrize("climb", ["%2E%2E/out", "%2E%2E/%2E%2E/%2E%2E/out", "/etc/out", "./out"])
def test_objects_whose_names_climb_are_never_brought_here(
    server: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, climb: str
) -> None:
    url, place = stored(tmp_path.name)
    put(server, f"{place}/{climb}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StudyError) as caught, Study.read(url).checkpoint("t1"):
        raise AssertionError("it was brought")
    assert "\n" not in str(caught.value)
    assert below(tmp_path) == set()


def test_a_url_that_climbs_stays_in_its_bucket(server: Way, tmp_path: Path) -> None:
    name = tmp_path.name
    url = f"{BUCKET}/a/../../../{name}"
    server.seen.clear()
    with opened(url) as driver:
        finish(driver, "t1")
        finish(driver, "t2")
    places = {request.split(" ")[1].split("?")[0] for request in server.seen}
    places -= {"/bucket", "/bucket/study.json"}  # read, to refuse a study inside a study
    assert places and all(f"/bucket/{name}/" in place for place in places)
    assert tables(Study.read(f"{BUCKET}/{name}")) == tables(Study.read(url))
