"""States of running trials: gone when a trial ends, taken up by whoever repeats the search."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launch_samples import lambda_space, numbers, rows, run_here
from processes import wait_until

from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study

LONG = "optimizer.epochs = 96\nevaluation.every = 40"
DRIVER = """
import sys
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import search
search(*sys.argv[1:], options=SearchOptions(launcher="local", save_every=0.0005))
"""


def curves(study: Path) -> list[dict[str, Any]]:
    found = Study.read(study).curves().to_pylist()
    return sorted(found, key=lambda row: (row["trial_id"], row["step"], row["metric"]))


def test_a_state_is_gone_when_its_trial_has_ended(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3, fixed=LONG), tmp_path / "study"
    run_here(space, study, save_every=0.0005)
    (row,) = rows(study)
    assert row["status"] == "finished"
    assert 0 < row["saving_seconds"] < 0.1 * row["wall_seconds"]
    assert not any((study / "states").iterdir())
    run_here(space, tmp_path / "never", save_every=0)
    (row,) = rows(tmp_path / "never")
    assert row["saving_seconds"] == 0
    assert not (tmp_path / "never/states").exists()
    assert numbers(study) == numbers(tmp_path / "never")


@pytest.mark.slow
def test_whoever_repeats_a_killed_command_goes_on_from_the_state(tmp_path: Path) -> None:
    lambda_space(tmp_path / "space", 0.3, fixed=LONG)
    (file,) = (tmp_path / "space").glob("*.toml")
    study, whole = tmp_path / "study", tmp_path / "whole"
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(file), str(study)]) as driver:
        wait_until(
            lambda: driver.poll() is not None or any((study / "states").glob("[0-9a-f]*")),
            "the first state",
        )
        driver.kill()
    assert not list((study / "trials").iterdir()), "it has not ended"
    run_here(load_space(file), study, save_every=0.0005)
    run_here(load_space(file), whole)
    (row,) = rows(study)
    assert row["notes"].startswith("went on from step ")
    assert numbers(study) == numbers(whole)
    assert curves(study) == curves(whole)
    assert not any((study / "states").iterdir())
