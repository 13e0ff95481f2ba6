"""One driver after another, with what came between: copies, late writers, failures half way."""

import shutil
from pathlib import Path

import obstore
import pytest
from store_samples import end, opened, seen, weights
from test_store_writer_lock import (
    short_terms,  # noqa: F401 - a fixture
)

from tune_sentcl.store import TrialFiles
from tune_sentcl.store.files import StudyFiles


def test_an_older_manifest_hides_no_later_row(tmp_path: Path) -> None:
    study, copy = tmp_path / "study", tmp_path / "study.json"
    with opened(study) as driver:
        end(driver, "a", "finished", 1.0)
    shutil.copy(study / "study.json", copy)
    for name in "bc":
        with opened(study) as driver:
            end(driver, name, "finished", 2.0)
    shutil.copy(copy, study / "study.json")
    with opened(study) as driver:
        assert driver.study.manifest.epoch == 4, "labels of the third driver are taken"
        end(driver, "d", "finished", 3.0)
    seen(study, a=1.0, b=2.0, c=2.0, d=3.0)


def test_a_copy_of_a_study_that_runs_is_nobody_s(tmp_path: Path) -> None:
    with opened(tmp_path / "study") as driver:
        end(driver, "a", "finished", 1.0)
        shutil.copytree(tmp_path / "study", tmp_path / "copy")
        with opened(tmp_path / "copy") as copy:
            end(copy, "b", "finished", 2.0)
    seen(str(tmp_path / "copy"), a=1.0, b=2.0)


@pytest.mark.parametrize("there", ["disk", "store"])
def test_a_study_that_was_copied_goes_on_with_its_weights(tmp_path: Path, there: str) -> None:
    """On a disk and on a store alike, and back."""
    here = tmp_path / "study"
    with opened(here) as driver:
        end(driver, "a", "finished", 1.0, "its")
        TrialFiles(here).write_state("b", lambda folder: None)
    place = f"memory://{tmp_path}" if there == "store" else str(tmp_path / "copy")
    _copy(str(here), place)
    with opened(place) as driver:
        assert driver.checkpoints() == {"a"}
        assert weights(driver.study, "a") == "its"
        assert driver.study.states() == {"b"}
        end(driver, "b", "finished", 2.0, "more")
    shutil.rmtree(here)
    _copy(place, str(here))
    with opened(here) as driver:
        seen(here, a=1.0, b=2.0)
        assert [weights(driver.study, name) for name in "ab"] == ["its", "more"]
        end(driver, "c", "finished", 3.0)
    seen(here, a=1.0, b=2.0, c=3.0)


def _copy(source: str, target: str) -> None:
    """Copy files alone, as `aws s3 sync` does; it leaves out empty folders."""
    one, other = StudyFiles.at(source), StudyFiles.at(target)
    other.make_folders()
    for found in obstore.list(one.client).collect():
        other.write_bytes(found["path"], one.read_bytes(found["path"]) or b"")
