"""A study that lies on an object store, or is named by a URL."""

import pickle
from pathlib import Path

import pytest
from store_samples import TABLES, end, finish, opened, space, weights

from tune_sentcl.errors import StudyError
from tune_sentcl.store import Study, TrialFiles


def test_a_study_on_an_object_store(tmp_path: Path) -> None:
    url = f"memory://{tmp_path}"
    with opened(url) as driver:
        files = pickle.loads(pickle.dumps(TrialFiles(url)))  # noqa: S301
        files.write_state("t1", lambda folder: None)
        end(driver, "t1", "pruned")
        end(driver, "t2", weights="its")
        end(driver, "t1", attempt=2, weights="one")
        end(driver, "t3", "failed")
        assert weights(driver.study, "t2") == "its"
        assert driver.study.checkpoints() == {"t1", "t2"}
        driver.keep_checkpoints(["t2"])
        assert driver.study.checkpoints() == {"t2"}
    assert not list(tmp_path.iterdir())
    reader = Study.read(url)
    assert sorted(reader.trials()["trial_id"].to_pylist()) == ["t1", "t2", "t3"]
    assert [len(getattr(reader, name)()) for name in TABLES] == [3, 4, 9]
    assert reader.states() == {"t1"}
    with pytest.raises(StudyError, match="belongs to space"):
        opened(url, space=space("other"))


def test_a_study_by_a_folder_s_url(tmp_path: Path) -> None:
    with opened(f"file://{tmp_path}/a%20b") as driver:
        finish(driver, "t1")
        assert driver.study.files.folder == tmp_path / "a b"
    assert len(Study.read(tmp_path / "a b").scores()) == 2
