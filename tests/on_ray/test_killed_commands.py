"""The command line as a user runs it: what it prints, and what is left when it is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import alive, descendants, wait_until
from search_samples import Row, checkpoints, numbers, objectives, rows, run_here, temporary_files

pytestmark = [pytest.mark.ray, pytest.mark.long]

TRIALS = 12  # two grid points and four sampled ones, with two seeds each


def search_command(study: Path) -> list[str]:
    program = [sys.executable, "-m", "tune_sentcl", "search", "smoke", "--study", str(study)]
    return [*program, "--trials", "4", "--seeds", "0,1"]


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


@contextmanager
def driver(study: Path, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The command in a process group of its own; its whole family is gone afterwards."""
    null = subprocess.DEVNULL
    with subprocess.Popen(
        search_command(study),
        env=environment(folder),
        cwd=folder,
        stdout=null,
        stderr=null,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kill_when(
    study: Path, folder: Path, rows_there: int, number: signal.Signals
) -> tuple[int, dict[int, str]]:
    """Send a signal to the driver when the study holds so many rows.

    Returns:
        Its exit code, and its Ray's processes; of these only the agents may still be there.
    """
    with driver(study, folder) as process:

        def reached() -> bool:
            assert process.poll() is None, "the driver ended before it was killed"
            there = (study / "study.json").is_file()
            return there and len(list((study / "trials").glob("*.parquet"))) >= rows_there

        wait_until(reached, f"{rows_there} rows")
        family = descendants(process.pid)
        process.send_signal(number)
        process.wait(timeout=300)
        agents = {pid for pid, command in family.items() if "Agent" in command}
        wait_until(lambda: alive(family) <= agents, "the end of the driver's Ray")
        return process.returncode, family


def assert_whole(found: list[Row]) -> None:
    assert len(found) == len({row["trial_id"] for row in found}) == TRIALS
    assert {row["status"] for row in found} == {"finished"}
    sampled = {row["configuration"] for row in found if row["origin"] == "sampler"}
    assert len(sampled) == 4
    assert len({row["configuration"] for row in found}) == 6


def test_a_driver_killed_again_and_again_ends_with_every_trial_once(tmp_path: Path) -> None:
    study = tmp_path / "study"
    families = []
    for rows_there in (0, 1, 6):
        code, family = kill_when(study, tmp_path, rows_there, signal.SIGKILL)
        assert code == -signal.SIGKILL
        families.append(family)
        seen = rows(study)
        assert len(seen) == len({row["trial_id"] for row in seen}) >= rows_there
    whole = finish(study, tmp_path)
    assert whole.returncode == 0, whole.stderr
    found = rows(study)
    assert_whole(found)
    assert {key[0] for key in numbers(study)} == {row["trial_id"] for row in found}
    best = max(objectives(study).items(), key=lambda item: item[1])[0]
    assert checkpoints(study) == {best}
    assert temporary_files(study) == []
    again = finish(study, tmp_path)
    assert again.returncode == 0
    assert "0 trials ran now, 0 of them failed" in again.stdout
    assert rows(study) == found
    # Ray's agents outlive it by a minute, and then go too; the last ones are not waited for.
    first = families[0] | families[1]
    wait_until(lambda: not alive(first), "the end of Ray's agents")


def test_an_interrupted_search_leaves_130_and_goes_on(tmp_path: Path) -> None:
    study = tmp_path / "study"
    code, _ = kill_when(study, tmp_path, 2, signal.SIGINT)
    assert code == 130
    assert 2 <= len(rows(study)) < TRIALS
    assert list((tmp_path / "tmp").glob("tune_sentcl_*")) == []
    whole = finish(study, tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert_whole(rows(study))
    here = tmp_path / "here"
    run_here("smoke", here, seeds=(0, 1))
    assert numbers(here).items() <= numbers(study).items()


def test_trap_ray_adds_nothing_to_stdout_and_leaves_no_files_behind(tmp_path: Path) -> None:
    study = tmp_path / "study"
    done = finish(study, tmp_path)
    assert done.returncode == 0, done.stderr
    again = finish(study, tmp_path)  # which has nothing to run, and so starts no Ray
    assert f"{TRIALS} trials ran now, 0 of them failed." in done.stdout
    assert done.stdout.replace(f"{TRIALS} trials ran", "0 trials ran") == again.stdout
    lines = [line for line in done.stderr.splitlines() if line]
    assert lines[0].startswith(f"{TRIALS} of {TRIALS} trials to run, ")
    assert lines[1].startswith("best so far none")
    assert all(line.startswith("[") for line in lines[2:-2])
    assert lines[-2].startswith("planned ")
    assert lines[-1].startswith(f"{TRIALS} trials in ")
    for noise in ("Configuration for experiment", "FileNotFoundError", "Traceback", "WARNING"):
        assert noise not in done.stdout + done.stderr
    assert not (tmp_path / "home" / "ray_results").exists()
    assert list((tmp_path / "tmp").glob("tune_sentcl_*")) == []
    names = {path.name for path in study.iterdir()}
    tables = {"trials", "scores", "curves", "checkpoints"}
    assert names == {"study.json", "progress.json", "optuna.journal", ".lock", *tables}
    for name in ("trials", "scores", "curves"):
        assert [path.name for path in (study / name).iterdir()] == ["all.1.parquet"]
