"""A study that lies on an object store, or is named by a URL."""

import pickle
from pathlib import Path

import fsspec
import pyarrow.fs as pafs
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


def _memory(_: Path) -> pafs.FileSystem:
    return pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("memory")))


def test_a_study_on_an_object_store(tmp_path: Path) -> None:
    store = _memory(tmp_path)
    root = str(tmp_path / "bucket")
    with opened(root, filesystem=store) as driver:
        files = pickle.loads(pickle.dumps(TrialFiles(root, store)))  # noqa: S301
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
        store.create_dir(f"{root}/checkpoints/half/abcd")
        assert driver.study.checkpoints() == {"t1", "t2"}
        driver.keep_checkpoints(["t2"])
        assert driver.study.checkpoints() == {"t2"}
        driver.compact()
    assert not Path(root).exists()
    reader = Study.read(root, store)
    assert sorted(reader.trials()["trial_id"].to_pylist()) == ["t1", "t2", "t3"]
    assert [len(getattr(reader, name)()) for name in TABLES] == [3, 4, 6]
    with pytest.raises(StudyError, match="belongs to space"):
        opened(root, filesystem=store, space=space("other"))


def test_a_study_by_url(tmp_path: Path) -> None:
    url = f"fsspec+memory://{tmp_path}/bucket"
    with opened(url) as study:
        finish(study, "t1")
    assert len(Study.read(url).scores()) == 2
    with opened(f"file://{tmp_path}/local") as study:
        assert study.study.files.local


@pytest.mark.parametrize("url", ["nosuch://k:pass@host/x", "s3a://user:pass@b/x"])
def test_a_url_that_nothing_opens_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StudyError) as caught:
        Study.read(url)
    assert "pass" not in str(caught.value)
