"""A study of every schema number stays readable.

`write_example` made the checked-in one: run this file with the folder to write to. A study of a
number that is past is never made again.
"""

import shutil
import sys
from pathlib import Path

import pytest
from store_samples import finish, opened, row

from tune_sentcl.store import Study

STUDIES = Path(__file__).parent / "studies"


def write_example(folder: Path) -> None:
    """A compacted file, a trial's own files beside it, and a failed trial."""
    with opened(folder) as driver:
        finish(driver, "t1", 71.0)
        driver.compact()
        finish(driver, "t2", 72.0)
        driver.commit(row("t3", "failed"))
    (folder / ".lock").unlink()


def _check(study: Study) -> None:
    trials = {t["trial_id"]: t for t in study.trials().to_pylist()}
    assert {t: trials[t]["status"] for t in trials} == {
        "t1": "finished",
        "t2": "finished",
        "t3": "failed",
    }
    assert trials["t1"]["method.lambda"] == 0.3
    assert trials["t1"]["method.num_positives"] == "3"
    assert trials["t3"]["error_type"] == "NonFiniteError"
    scores = {(s["trial_id"], s["task"]): s["value"] for s in study.scores().to_pylist()}
    assert scores == {
        (trial, task): value
        for trial, value in (("t1", 71.0), ("t2", 72.0))
        for task in ("STS12", "STS13")
    }
    assert len(study.curves()) == 6


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_checked_in_study_is_read_and_continued(tmp_path: Path, number: int) -> None:
    source = STUDIES / f"v{number}"
    _check(Study.read(source))
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    with opened(copy) as driver:
        _check(driver.study)
        driver.compact()
        _check(driver.study)
    _check(Study.read(copy))


def test_the_script_still_writes_such_a_study(tmp_path: Path) -> None:
    write_example(tmp_path)
    _check(Study.read(tmp_path))


if __name__ == "__main__":
    write_example(Path(sys.argv[1]))
