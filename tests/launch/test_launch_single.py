"""One trial as a library trains it, without Ray."""

from pathlib import Path

from launch_samples import rows

from tune_sentcl.launch.single import train_one

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}


def test_a_trial_takes_one_core_and_no_gpu_unless_it_is_told(tmp_path: Path) -> None:
    scores = train_one(TOY, study=tmp_path / "study", data=None, gpus=0.0)
    (row,) = rows(tmp_path / "study")
    assert (row["cpus"], row["gpus"], row["origin"], row["attempt"]) == (1, 0.0, "single", 1)
    assert {score["trial_id"] for score in scores} == {row["trial_id"]}
    assert train_one(TOY, study=tmp_path / "study", data=None, gpus=0.0) == scores
    alone = train_one(TOY, study=None, data=None, gpus=0.0)
    values = [{s["task"]: s["value"] for s in found} for found in (alone, scores)]
    assert values[0] == values[1]
