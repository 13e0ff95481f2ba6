"""Files that a suite needs and the data root lacks."""

from pathlib import Path

import pytest
from launch_samples import lambda_space, rows

from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import search
from tune_sentcl.store.study import Study

WHOLE = """
evaluation.data = "root"
evaluation.suites = ["sts", "transfer"]
evaluation.protocols = ["cosine", "senteval-5fold"]
"""


@pytest.mark.real
@pytest.mark.slow
def test_they_are_named_once_and_not_in_every_trial(
    tmp_path: Path, real_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root/downstream").mkdir(parents=True)
    for name in ("STS", "SICK", "CR"):
        (tmp_path / f"root/downstream/{name}").symlink_to(real_data / "downstream" / name)
    space = lambda_space(tmp_path, 0.3, 0.6, fixed=WHOLE)
    study = tmp_path / "study"
    search(space, study, data=tmp_path / "root", options=SearchOptions(launcher="local"))
    said = capsys.readouterr().err
    assert said.count("MRPC is not measured: ") == 1
    assert said.count("msr_paraphrase_train.txt: the file does not exist") == 1
    assert "CR is not measured" not in said
    assert [row["status"] for row in rows(study)] == ["finished"] * 2
    assert [row["notes"] for row in rows(study)] == [None] * 2
    lacking = [row for row in Study.read(study).scores().to_pylist() if row["task"] == "MRPC"]
    assert all("does not exist" in row["reason"] for row in lacking)
    assert len({row["trial_id"] for row in lacking}) == 2
