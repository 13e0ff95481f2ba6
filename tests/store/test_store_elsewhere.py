"""A study that lies on an object store, or is named by a URL."""

import pickle
from pathlib import Path

import pytest
from store_samples import (
    TABLES,
    finish,
    opened,
    points,
    row,
    scores,
    space,
    weigh,
    weights,
)

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles


def test_a_study_on_an_object_store(tmp_path: Path) -> None:
    url = f"memory://{tmp_path}"
    with opened(url) as driver:
        files = pickle.loads(pickle.dumps(TrialFiles(url)))  # noqa: S301
        files.write_scores("t1", scores())
        files.write_curves("t1", points())
        driver.commit(row("t1"))
        driver.compact()
        driver.commit(row("t1", attempt=2))
        finish(driver, "t2")
        driver.commit(row("t3", "failed"))
        weigh(files, "t2", "old")
        weigh(files, "t2", "new")
        weigh(files, "t1", "one")
        assert weights(files, "t2") == "new"
        driver.study.files.write_bytes("checkpoints/half/0123abcd/model.safetensors", b"torn")
        assert driver.study.checkpoints() == {"t1", "t2"}
        driver.keep_checkpoints(["t2"])
        assert driver.study.checkpoints() == {"t2"}
        driver.compact()
    assert not list(tmp_path.iterdir())
    reader = Study.read(url)
    assert sorted(reader.trials()["trial_id"].to_pylist()) == ["t1", "t2", "t3"]
    assert [len(getattr(reader, name)()) for name in TABLES] == [3, 4, 6]
    with pytest.raises(StudyError, match="belongs to space"):
        opened(url, space=space("other"))
    with opened(url) as driver:
        assert "half" not in driver.study.files.names("checkpoints")


def test_a_study_by_a_folder_s_url(tmp_path: Path) -> None:
    with opened(f"file://{tmp_path}/a%20b") as driver:
        finish(driver, "t1")
        assert driver.study.files.folder == tmp_path / "a b"
    assert len(Study.read(tmp_path / "a b").scores()) == 2
