"""Trials that need more memory than their device has: `--accumulate`."""

from pathlib import Path
from typing import Any

import pytest
import small_device as devices
from local_ray import start_ray
from ray.cloudpickle import register_pickle_by_value as register_by_value
from search_samples import Row, lambda_space, rows, run_here
from small_device import TOLD, SmallDeviceLoader, small_device

from tune_sentcl.launch import run_prepared
from tune_sentcl.space import Space
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.worker import worker_settings

NOTE = "each batch was split in 4 parts, because a whole one did not fit the device's memory"
COUPLED = (
    "a training step: a batch of 32 rows: must fit the device's memory, because the batch cannot "
    "be split: the contrastive loss compares the rows of a batch, unless method.lambda is "
    "0. Lower optimizer.batch_size, encoder.train_length or encoder.max_length."
)


def space_of(folder: Path, *lambdas: float) -> Space:
    """SCL, whose loss couples a batch's rows unless lambda is 0; two batches of 32."""
    return lambda_space(folder, *lambdas, fixed='method.divisor = "tokens"')


def by_lambda(study: Path) -> dict[float, Row]:
    return {row["method.lambda"]: row for row in rows(study)}


def test_a_trial_that_does_not_fit_is_trained_in_parts_where_that_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = space_of(tmp_path / "space", 0.0, 0.3), tmp_path / "study"
    options: dict[str, Any] = {"gpus_per_trial": 0.0, "accumulate": True}
    with small_device(8):
        outcome = run_here(space, study, **options)
    assert (outcome.ran, outcome.failures) == (2, 1)
    found = by_lambda(study)
    divided, coupled = found[0.0], found[0.3]
    assert (divided["status"], divided["notes"], divided["attempt"]) == ("finished", NOTE, 1)
    assert (coupled["status"], coupled["error_type"]) == ("failed", "OutOfMemoryError")
    assert coupled["error_text"] == f"{COUPLED}\n{TOLD}"
    told = capsys.readouterr().err
    assert told.count(NOTE) == 1
    assert f"failed: OutOfMemoryError: {COUPLED.removesuffix('.')}\n" in told
    run_here(space, tmp_path / "roomy", **options)
    roomy = by_lambda(tmp_path / "roomy")
    assert roomy[0.0]["notes"] is None
    assert {row["trial_id"] for row in roomy.values()} == {
        row["trial_id"] for row in found.values()
    }


def test_nobody_is_taken_in_parts_who_has_not_asked(tmp_path: Path) -> None:
    space, study = space_of(tmp_path / "space", 0.0), tmp_path / "study"
    with small_device(8):
        run_here(space, study, gpus_per_trial=0.0)
    (row,) = rows(study)
    assert (row["status"], row["error_type"]) == ("failed", "OutOfMemoryError")
    assert "Or let a search split the batch with --accumulate." in row["error_text"]
    assert worker_settings(None, SearchOptions(accumulate=True), 0.0).accumulate
    run_here(space, study, gpus_per_trial=0.0, accumulate=True)
    (row,) = rows(study)
    assert (row["status"], row["attempt"], row["notes"]) == ("finished", 2, None)


def test_the_evaluation_takes_fewer_sentences_at_a_time(tmp_path: Path) -> None:
    space = space_of(tmp_path / "space", 0.0)
    with small_device(8, training=False) as device:
        run_here(space, tmp_path / "small", gpus_per_trial=0.0)
    with small_device(10**6, training=False):  # padded, too
        run_here(space, tmp_path / "roomy", gpus_per_trial=0.0)
    (row,), (roomy,) = rows(tmp_path / "small"), rows(tmp_path / "roomy")
    assert device.refused > 0
    assert row["objective"] == pytest.approx(roomy["objective"], abs=1e-3)
    with small_device(0, training=False):
        run_here(space, tmp_path / "none", gpus_per_trial=0.0)
    (row,) = rows(tmp_path / "none")
    assert (row["status"], row["error_type"]) == ("failed", "OutOfMemoryError")
    assert (row["error_text"], row["notes"]) == (TOLD, None)


@pytest.mark.ray
@pytest.mark.long
def test_workers_of_ray_take_parts_too(tmp_path: Path) -> None:
    start_ray()
    register_by_value(devices)
    options = SearchOptions(gpus_per_trial=0.0, accumulate=True)
    prepared = prepare(space_of(tmp_path / "space", 0.0), None, (0,), options)
    prepared.proposals.namer.loader = SmallDeviceLoader(8)
    outcome = run_prepared(prepared, str(tmp_path / "study"))
    assert (outcome.ran, outcome.failures) == (1, 0)
    (row,) = rows(tmp_path / "study")
    assert (row["status"], row["notes"], row["attempt"]) == ("finished", NOTE, 1)
