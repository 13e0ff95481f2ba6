"""The command line as a user runs it: what it prints, and what Ray leaves behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long]

TRIALS = 12  # two grid points and four sampled ones, with two seeds each


def search_command(study: Path) -> list[str]:
    program = [sys.executable, "-m", "tune_sentcl", "search", "smoke", "--study", str(study)]
    return [*program, "--trials", "4", "--seeds", "0,1", "--scheduler", "none"]


def environment(folder: Path) -> dict[str, str]:
    """A home and a folder for temporary files of the run's own; Ray's session lies elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "RAY_TMPDIR": "/tmp"}
    return {**kept, **own, "COLUMNS": "200"}


def finish(study: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    return subprocess.run(
        search_command(study),
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_trap_ray_adds_nothing_to_stdout_and_leaves_no_files_behind(tmp_path: Path) -> None:
    study = tmp_path / "study"
    done = finish(study, tmp_path)
    assert done.returncode == 0, done.stderr
    again = finish(study, tmp_path)  # which has nothing to run, and so starts no Ray
    assert f"{TRIALS} runs ended now, 0 of them failed." in done.stdout
    assert done.stdout.replace(f"{TRIALS} runs ended", "0 runs ended") == again.stdout
    lines = [line for line in done.stderr.splitlines() if line]
    assert lines[0].startswith(f"{TRIALS} of {TRIALS} runs to go, ")
    assert lines[1].startswith("best so far none")
    assert lines[2].startswith("sampled configurations by stage")
    ends = [line for line in lines[2:-2] if line.startswith("[")]
    assert len(ends) == TRIALS and lines[-2 - TRIALS : -2] == ends
    assert lines[-2].startswith("planned ")
    assert lines[-1].startswith(f"{TRIALS} runs in ")
    for noise in ("Configuration for experiment", "FileNotFoundError", "Traceback", "WARNING"):
        assert noise not in done.stdout + done.stderr
    assert not (tmp_path / "home" / "ray_results").exists()
    assert list((tmp_path / "tmp").glob("tune_sentcl_*")) == []
    names = {path.name for path in study.iterdir()}
    tables = {"trials", "scores", "curves", "checkpoints"}
    assert names == {"study.json", "progress.json", "optuna.journal", ".lock", *tables}
    for name in ("trials", "scores", "curves"):
        assert [path.name for path in (study / name).iterdir()] == ["000001.parquet"]
