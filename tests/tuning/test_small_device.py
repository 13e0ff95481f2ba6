"""Trials that need more memory than their device has."""

from pathlib import Path

import pytest
from search_samples import lambda_space, rows, run_here
from small_device import TOLD, small_device

from tune_sentcl.space import Space

SAID = (
    "a training step: a batch of 32 rows: must fit the device's memory. Set method.chunk to "
    "encode its sentences in chunks. Or lower optimizer.batch_size, encoder.train_length or "
    "encoder.max_length."
)


def space_of(folder: Path, value: float) -> Space:
    """SCL, whose loss compares a batch's rows; two batches of 32."""
    return lambda_space(folder, value, fixed='method.divisor = "tokens"')


def test_a_trial_that_does_not_fit_fails_and_names_the_knob(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = space_of(tmp_path / "space", 0.3), tmp_path / "study"
    with small_device(8):
        outcome = run_here(space, study, gpus_per_trial=0.0)
    (row,) = rows(study)
    assert (outcome.failures, row["status"], row["error_type"]) == (
        1,
        "failed",
        "OutOfMemoryError",
    )
    assert row["error_text"] == f"{SAID}\n{TOLD}"
    assert f"failed: OutOfMemoryError: {SAID.removesuffix('.')}\n" in capsys.readouterr().err


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
