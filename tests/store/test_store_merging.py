"""Studies brought together in a new one: whole or not at all, and the sources untouched."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from s3_server import Way, make_bucket, s3_server, variables
from store_samples import (
    finish,
    opened,
    points,
    row,
    scores,
    space,
    tables,
    weigh,
    weights,
    worker,
)
from store_stops import Stopped, writes

from tune_sentcl.errors import DamagedError, StudyError
from tune_sentcl.store import SearchRecord, Study, TrialFiles, merging, objects
from tune_sentcl.store.merging import Merged

STUDIES = Path(__file__).parent / "studies"
COMMAND = ["tune-sentcl", "merge", "--token=s3cr3tvalue1"]
ASKED = SearchRecord(("STS-B:spearman:dev",), "tpe", 3)


def merge(*paths: Any, to: Any, **options: Any) -> list[Merged]:
    return merging.merge(paths, to, command=COMMAND, **options)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two studies that share trials `s` (both finished) and `f` (failed in the first).

    The first is compacted in part; its driver was cut off before it ended.
    """
    place = tmp_path_factory.mktemp("sources")
    one, other = place / "one", place / "other"
    with opened(one) as driver:
        driver.record(ASKED)
        for name in ("a", "s"):
            finish(driver, name)
            weigh(worker(driver), name, f"{name} of one")
        driver.commit(row("f", "failed"))
        driver.compact()
        finish(driver, "b")
    with opened(other) as driver:
        driver.record(replace(ASKED, sampler_seed=4))
        for name in ("s", "f", "c"):
            finish(driver, name)
            weigh(worker(driver), name, f"{name} of other")
        worker(driver).write_scores("s", scores(70.0, 3))
    return one, other


def stand(*folders: Path) -> Mapping[str, tuple[bytes, int]]:
    """Every file of some folders, with its bytes and when it was changed."""
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


def test_a_union_by_trial(sources: tuple[Path, Path], tmp_path: Path) -> None:
    before = stand(*sources)
    to = tmp_path / "deep" / "merged"
    assert merge(*sources, to=to) == [
        Merged(str(sources[0]), "tiny", trials=4, counted=3, weights=2),
        Merged(str(sources[1]), "tiny", trials=3, counted=2, weights=2),
    ]
    assert stand(*sources) == before
    study = Study.read(to)
    rows = study.trials(["trial_id", "status", "attempt_files"]).to_pylist()
    assert {r["trial_id"]: r["status"] for r in rows} == dict.fromkeys("absfc", "finished")
    assert {r["attempt_files"] for r in rows} == {None}
    counts = dict.fromkeys("absfc", 0)
    for found in study.scores(["trial_id"]).to_pylist():
        counts[found["trial_id"]] += 1
    assert counts == {"a": 2, "b": 2, "s": 3, "f": 2, "c": 2}
    assert study.checkpoints() == {"a", "s", "f", "c"}
    kept = {name: weights(TrialFiles(to), name) for name in sorted(study.checkpoints())}
    assert kept == {"a": "a of one", "c": "c of other", "f": "f of other", "s": "s of one"}
    assert sorted(p.name for p in to.iterdir()) == [
        *("checkpoints", "curves", "scores", "study.json", "trials")
    ]
    assert sorted(p.name for p in to.parent.iterdir()) == ["merged"]


def test_the_result_goes_on_as_a_study_of_its_space(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    to = tmp_path / "merged"
    merge(*sources, to=to)
    manifest = Study.read(to).manifest
    assert (manifest.space, manifest.schema, manifest.search) == ("tiny", 3, ASKED)
    assert manifest.space_texts == (space().text,)
    assert manifest.commands[0] == "tune-sentcl run tiny"
    assert "merge" in manifest.commands[-1] and "s3cr3tvalue1" not in manifest.commands[-1]
    before = tables(Study.read(to))
    with opened(to) as driver:
        assert driver.study.manifest.epoch == 2
        assert tables(driver.study) == before
        finish(driver, "new")
        label = driver.attempt_files("a")
        files = TrialFiles(to, label, driver.attempt_before("a"))
        files.add_scores("a", scores(1.0, 3))
        files.keep_curves("a")
        # Without its row the attempt does not count.
        assert {r["trial_id"] for r in tables(driver.study)["scores"]} == set("absfc") | {"new"}
        assert len(driver.study.scores(among={"a": None})) == 2
        driver.commit(replace(row("a", attempt=2), attempt_files=label))
        assert driver.study.scores(["value"], among={"a": label})["value"].to_pylist() == [
            *(70.0, 70.0, 1.0)
        ]
        driver.compact()
    assert len(Study.read(to).trials()) == 6


def test_a_row_group_holds_so_many_trials_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("merging", "gathering"):
        monkeypatch.setattr(f"tune_sentcl.store.{module}.GATHERED", 5)
    for name, numbers in (("one", range(0, 8, 2)), ("other", range(1, 8, 2))):
        with opened(tmp_path / name) as driver:
            for number in numbers:
                finish(driver, f"t{number:03d}")
    to = tmp_path / "to"
    merge(tmp_path / "one", tmp_path / "other", to=to)
    for folder, each in (("trials", 1), ("scores", 2), ("curves", 3)):
        (file,) = (to / folder).iterdir()
        parts = pq.ParquetFile(file)
        ids = [set(parts.read_row_group(n)["trial_id"].to_pylist()) for n in range(2)]
        assert parts.num_row_groups == 2
        assert [len(found) for found in ids] == [5, 3]
        assert parts.metadata.num_rows == 8 * each


def test_studies_of_older_schemas_come_along_with_their_weights(tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(STUDIES / "v1", old)
    weigh(TrialFiles(old), "t1", "its")
    before = stand(old)
    with opened(tmp_path / "new") as driver:
        finish(driver, "n")
    merge(old, tmp_path / "new", to=tmp_path / "to")
    assert stand(old) == before
    merged = Study.read(tmp_path / "to")
    assert merged.manifest.schema == 3
    assert set(merged.ended()) == {*Study.read(old).ended(), "n"}
    assert merged.checkpoints() == Study.read(old).checkpoints()
    assert "version_ray" in merged.trials().column_names


def test_a_study_that_runs_is_merged_as_it_stands(tmp_path: Path) -> None:
    with opened(tmp_path / "other") as driver:
        finish(driver, "o")
    with opened(tmp_path / "one") as driver:
        finish(driver, "a")
        worker(driver).write_scores("under-way", scores())
        worker(driver).write_state("under-way", lambda folder: (folder / "x").touch())
        merge(tmp_path / "one", tmp_path / "other", to=tmp_path / "to")
        driver.commit(row("under-way"))
    merged = Study.read(tmp_path / "to")
    assert set(merged.ended()) == {"a", "o"} and not merged.states()
    assert {r["trial_id"] for r in merged.scores().to_pylist()} == {"a", "o"}


def test_weights_may_stay_behind(sources: tuple[Path, Path], tmp_path: Path) -> None:
    assert [found.weights for found in merge(*sources, to=tmp_path / "to", weights=False)] == [
        0,
        0,
    ]
    assert Study.read(tmp_path / "to").checkpoints() == set()


def test_of_several_spaces_the_result_is_read_and_not_searched(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with opened(tmp_path / name, space=space(name)) as driver:
            driver.record(replace(ASKED, objectives=(f"{name}:x",)))
            finish(driver, "t" if name == "one" else "u")
    merge(tmp_path / "one", tmp_path / "other", to=tmp_path / "to")
    manifest = Study.read(tmp_path / "to").manifest
    assert (manifest.space, manifest.search) == ("one + other", None)
    for name in ("one", "other"):
        with pytest.raises(StudyError, match="belongs to space 'one \\+ other'"):
            opened(tmp_path / "to", space=space(name))
    # Merged again it bears each name once.
    merge(tmp_path / "to", tmp_path / "one", to=tmp_path / "again")
    assert Study.read(tmp_path / "again").manifest.space == "one + other"


def test_finished_rows_that_do_not_agree_refuse_it(tmp_path: Path) -> None:
    for name, value in (("one", 70.0), ("other", 71.0)):
        with opened(tmp_path / name) as driver:
            for number in range(12):
                finish(driver, f"t{number:02d}", value)
    with pytest.raises(StudyError) as caught:
        merge(tmp_path / "one", tmp_path / "other", to=tmp_path / "to")
    said = str(caught.value).splitlines()
    score = "STS12:spearman:test:cosine, sts, toy"
    values = f"70.0 in {tmp_path / 'one'} and 71.0 in {tmp_path / 'other'}"
    assert said[0].startswith(f"trial t00: {score} = {values}: two finished rows of one trial")
    assert (len(said), said[-1].split(". ")[0]) == (11, "merge: 2 more do not agree either")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "other"]


Taking = Callable[[Path], Any]


@pytest.mark.parametrize(
    "taken",
    [
        lambda to: to.mkdir(),
        lambda to: to.write_text(""),
        lambda to: to.symlink_to("nowhere"),
        lambda to: opened(to).close(),
    ],
)
def test_a_place_that_is_taken_is_refused(
    taken: Taking, sources: tuple[Path, Path], tmp_path: Path
) -> None:
    to = tmp_path / "to"
    taken(to)
    before = [(p, p.lstat().st_mtime_ns) for p in sorted(tmp_path.rglob("*"))]
    with pytest.raises(StudyError, match="must not exist yet"):
        merge(*sources, to=to)
    assert [(p, p.lstat().st_mtime_ns) for p in sorted(tmp_path.rglob("*"))] == before


def test_what_cannot_be_merged_is_refused(sources: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="two studies or more"):
        merge(sources[0], to=tmp_path / "to")
    with pytest.raises(StudyError, match="must be a study"):
        merge(sources[0], tmp_path, to=tmp_path / "to")
    with pytest.raises(StudyError, match="must not lie in a study"):
        merge(*sources, to=sources[1] / "trials" / "to")
    broken = tmp_path / "broken"
    shutil.copytree(sources[0], broken)
    (broken / "scores" / "b.parquet").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"b\.parquet"):
        merge(sources[1], broken, to=tmp_path / "to")
    assert [p.name for p in tmp_path.iterdir()] == ["broken"]


def test_no_link_in_weights_brings_other_files_along(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3tvalue1")
    for name in ("one", "other"):
        with opened(tmp_path / name) as driver:
            finish(driver, name)
    weigh(TrialFiles(tmp_path / "one"), "one", "its")
    (tmp_path / "one" / "checkpoints" / "one" / "more.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(StudyError, match="is a link"):
        merge(tmp_path / "one", tmp_path / "other", to=tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.slow
def test_a_kill_at_any_write_leaves_no_study_or_a_whole_one(
    sources: tuple[Path, Path], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    to = place / "to"
    with writes(place) as counted:
        merge(*sources, to=to)
    whole = tables(Study.read(to))
    shutil.rmtree(to)
    ended = set()
    for allowed in range(counted.seen):
        try:
            with writes(place, allowed):
                merge(*sources, to=to)
        except Stopped:
            pass
        else:
            pytest.fail("was not stopped")
        _die(place)
        if to.exists():
            assert tables(Study.read(to)) == whole
            ended.add(True)
            shutil.rmtree(to)
            continue
        with pytest.raises(StudyError, match="must be a study"):
            Study.read(to)
        ended.add(False)
        # Whoever comes next clears that away and is not kept from it.
        if allowed % 7 == 0:
            merge(*sources, to=to)
            assert tables(Study.read(to)) == whole
            assert [p.name for p in place.iterdir()] == ["to"]
            shutil.rmtree(to)
    assert ended == {False}  # its renaming is the last write


def _die(place: Path) -> None:
    """Let what this process has left under temporary names be a dead one's."""
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    for path in list(place.iterdir()):
        if f".{os.getpid()}@" in path.name:
            path.rename(path.with_name(path.name.replace(f".{os.getpid()}@", f".{dead.pid}@")))


@pytest.fixture(scope="module")
def server() -> Iterator[Way]:
    with s3_server() as way, pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("AWS_")]:
            patch.delenv(name)
        url = f"http://127.0.0.1:{way.port}"
        for name, value in {**variables(url), "no_proxy": "127.0.0.1"}.items():
            patch.setenv(name, value)
        make_bucket(url)
        patch.setattr(objects, "_RETRIES", 0)
        objects._opened.cache_clear()
        yield way
    objects._opened.cache_clear()


@pytest.mark.slow
def test_studies_in_buckets_and_folders_come_together_in_a_bucket(
    server: Way, sources: tuple[Path, Path]
) -> None:
    url = "s3://bucket/other"
    with opened(url) as driver:
        for name in ("c", "d"):
            worker(driver).write_scores(name, scores())
            worker(driver).write_curves(name, points())
            weigh(worker(driver), name, f"{name} of the bucket")
            driver.commit(row(name))
    to = "s3://bucket/whole"
    server.seen.clear()
    merge(sources[0], url, to=to)
    requests = len(server.seen)
    whole = tables(Study.read(to))
    assert {r["trial_id"] for r in whole["trials"]} == set("asfbcd")
    assert weights(TrialFiles(to), "d") == "d of the bucket"
    assert weights(TrialFiles(to), "a") == "a of one"
    for taken in (to, "s3://bucket"):
        with pytest.raises(StudyError, match="must not exist yet"):
            merge(sources[0], url, to=taken)
    with pytest.raises(StudyError, match="must not lie in a study"):
        merge(sources[0], url, to=f"{url}/further")
    for allowed in range(requests):
        for lost in (True, False):
            place = f"s3://bucket/cut/{allowed}-{lost}"
            server.allowed, server.lost_whole = allowed, lost
            with pytest.raises(StudyError):
                merge(sources[0], url, to=place)
            server.allowed = None
            try:
                assert tables(Study.read(place)) == whole
            except StudyError as error:
                assert "must be a study" in str(error)
    with pytest.raises(StudyError, match="may be deleted"):
        merge(sources[0], url, to=f"s3://bucket/cut/{requests - 1}-True")
