"""What a study keeps, whom it refuses, and what its readers see."""

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from store_samples import TABLES, finish, opened, points, row, scl, scores, space

from tune_sentcl.config import knobs, parse_config
from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, StudyWriter, TrialRow
from tune_sentcl.store.schema import CURVES, SCORES, TRIALS


def test_a_trial_comes_back_as_it_was_committed(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        study.write_scores("t1", scores())
        study.write_curves("t1", points())
        assert len(study.scores()) == len(study.curves()) == 0, "no row, no scores"
        study.commit(row("t1", config=scl(7, **{"lambda": 0.9})))
    reader = Study.read(tmp_path)
    assert reader.trials().schema.equals(TRIALS, check_metadata=True)
    assert reader.scores().schema.equals(SCORES)
    assert reader.curves().schema.equals(CURVES)
    (trial,) = reader.trials().to_pylist()
    assert trial["method.lambda"] == 0.9
    assert trial["method.num_positives"] == "3"
    assert trial["method.num_negatives"] == "all"
    assert trial["method.cross_premise_label"] is None
    assert trial["evaluation.suites"] == ["sts"]
    assert trial["encoder.share_duplicates"] is True
    assert trial["seed"] == 7
    assert trial["started_at"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert trial["version_python"] == "3.11.0"
    assert trial["version_ray"] is None
    config = parse_config(json.loads(trial["config"]), "test")
    assert config == scl(7, **{"lambda": 0.9})
    assert [s["value"] for s in reader.scores().to_pylist()] == [70.0, 70.0]
    assert [p["step"] for p in reader.curves().to_pylist()] == [0, 1, 2]


def test_every_fact_and_every_knob_has_a_column() -> None:
    assert set(row("t1").values()) <= set(TRIALS.names)
    assert set(knobs()) <= set(TRIALS.names)
    assert len(set(TRIALS.names)) == len(TRIALS.names)


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        TrialRow(
            scl(),
            trial_id="t1",
            configuration="c",
            space="tiny",
            origin="grid",
            status="finished",
            started_at=datetime(2026, 1, 1),
        )


def test_columns_keep_their_types_when_all_null(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        study.write_scores("t1", scores())
        study.commit(row("t1", "failed"))
    table = pq.read_table(tmp_path / "trials" / "t1.parquet")
    assert table.schema.equals(TRIALS)
    assert table.schema.metadata[b"tune_sentcl.schema"] == b"1"
    assert pq.read_table(tmp_path / "scores" / "t1.parquet")["classifier_seed"].type == pa.int64()


@pytest.mark.parametrize("compacted", [False, True])
def test_a_failed_row_gives_way_to_its_repetition(tmp_path: Path, compacted: bool) -> None:
    with opened(tmp_path) as study:
        finish(study, "t1")
        study.write_scores("t2", scores(1.0))
        study.write_curves("t2", points(1.0))
        study.commit(row("t2", "failed"))
        if compacted:
            study.compact()
    with opened(tmp_path) as study:
        study.discard("t2")
        study.write_scores("t2", scores(2.0))
        study.commit(row("t2", attempt=2))
        finish(study, "t3")
        by_id = {t["trial_id"]: t for t in study.trials().to_pylist()}
        assert by_id["t2"]["status"] == "finished"
        assert by_id["t2"]["attempt"] == 2
        assert sorted(pd.read_parquet(tmp_path / "trials")["trial_id"]) == ["t1", "t2", "t3"]
        values = [s["value"] for s in study.scores().to_pylist() if s["trial_id"] == "t2"]
        assert values == [2.0, 2.0]
        assert {p["trial_id"] for p in study.curves().to_pylist()} == {"t1", "t3"}
        assert (tmp_path / "trials" / "t2.parquet").exists() is not compacted


def test_a_second_evaluation_of_a_compacted_trial_keeps_its_curves(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        finish(study, "t1")
        finish(study, "t2")
        study.compact()
        study.write_scores("t1", scores(99.0, 5))
        study.commit(row("t1"))
        assert len(study.curves()) == 6
        assert len(study.scores()) == 7
        assert len(pd.read_parquet(tmp_path / "scores")) == 7
        study.compact()
        assert len(study.scores()) == 7


def test_compacting_leaves_files_of_trials_under_way(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        finish(study, "t1")
        study.write_scores("t2", scores())
        study.compact()
        study.compact()
        study.commit(row("t2"))
        assert len(study.scores()) == 4


def test_only_the_best_checkpoints_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        for trial_id in ("t1", "t2", "under-way"):
            folder = Path(study.checkpoint_path(trial_id))
            folder.mkdir(parents=True)
            (folder / "model.safetensors").write_bytes(b"0")
        study.keep_checkpoints(["t2"])
        assert len(list((tmp_path / "checkpoints").iterdir())) == 3, "none has ended"
        finish(study, "t1")
        study.compact()
        finish(study, "t2")
        study.keep_checkpoints(["t2"])
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {"t2", "under-way"}


def test_an_older_file_lacks_a_column_and_a_newer_one_has_one_more(tmp_path: Path) -> None:
    with opened(tmp_path) as study:
        finish(study, "t1")
        finish(study, "t2")
        finish(study, "t3")
    old, new = tmp_path / "trials" / "t1.parquet", tmp_path / "trials" / "t2.parquet"
    pq.write_table(pq.read_table(old).drop_columns(["attempt", "method.lambda"]), old)
    table = pq.read_table(new)
    pq.write_table(table.append_column("method.margin", pa.array([0.25])), new)
    with opened(tmp_path) as study:
        for _ in range(2):
            trials = {t["trial_id"]: t for t in study.trials().to_pylist()}
            assert [trials[t]["attempt"] for t in ("t1", "t2", "t3")] == [None, 1, 1]
            assert [trials[t]["method.margin"] for t in ("t1", "t2", "t3")] == [None, 0.25, None]
            assert study.trials().schema.names == [*TRIALS.names, "method.margin"]
            study.compact()
        study.commit(row("t2", attempt=2))
        assert len(study.trials()) == 3


@pytest.mark.parametrize("name", ["../t1", "", "all", "a/b", ".t"])
def test_a_trial_id_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    with opened(tmp_path) as study, pytest.raises(ValueError, match="no trial_id"):
        study.write_scores(name, scores())


def test_a_changed_text_extends_the_study(tmp_path: Path) -> None:
    opened(tmp_path, command=["a", "--token", "s3cret"]).close()
    created = Study.read(tmp_path).manifest.created
    opened(tmp_path, space=space(text="more"), command=["b"]).close()
    opened(tmp_path, command=["b"]).close()
    manifest = Study.read(tmp_path).manifest
    assert manifest.space_texts == (space().text, "more")
    assert manifest.commands == ("a --token HIDDEN", "b")
    assert manifest.created == created
    assert manifest.versions["python"]
    assert "s3cret" not in (tmp_path / "study.json").read_text()


def test_another_space_is_refused_and_the_lock_let_go(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StudyError, match="'tiny', not 'other'"):
        opened(tmp_path, space=space("other"))
    opened(tmp_path).close()


def test_a_reader_cannot_write_the_row(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(StudyError, match="reading only"):
        Study.read(tmp_path).commit(row("t1"))


def _memory(_: Path) -> pafs.FileSystem:
    return pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("memory")))


def test_a_study_on_an_object_store(tmp_path: Path) -> None:
    store = _memory(tmp_path)
    root = str(tmp_path / "bucket")
    with opened(root, filesystem=store) as study:
        writer = pickle.loads(pickle.dumps(StudyWriter(root, store)))  # noqa: S301
        writer.write_scores("t1", scores())
        writer.write_curves("t1", points())
        study.commit(row("t1", "failed"))
        study.compact()
        study.commit(row("t1", attempt=2))
        finish(study, "t2")
        with store.open_output_stream(f"{study.checkpoint_path('t2')}/x") as stream:
            stream.write(b"0")
        study.keep_checkpoints([])
        assert study.files.names("checkpoints") == []
    assert not Path(root).exists()
    reader = Study.read(root, store)
    assert sorted(reader.trials()["trial_id"].to_pylist()) == ["t1", "t2"]
    assert {len(getattr(reader, name)()) for name in TABLES} == {2, 3}
    with pytest.raises(StudyError, match="belongs to space"):
        opened(root, filesystem=store, space=space("other"))


def test_a_study_by_url(tmp_path: Path) -> None:
    url = f"fsspec+memory://{tmp_path}/bucket"
    with opened(url) as study:
        finish(study, "t1")
    assert len(Study.read(url).scores()) == 2
    with opened(f"file://{tmp_path}/local") as study:
        assert study.files.local


@pytest.mark.parametrize("url", ["nosuch://k:pass@host/x", "s3a://user:pass@b/x"])
def test_a_url_that_nothing_opens_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StudyError) as caught:
        Study.read(url)
    assert "pass" not in str(caught.value)
