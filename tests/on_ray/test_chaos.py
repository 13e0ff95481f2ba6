"""One study of many short trials under kills at random; each trial is there once in the end."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from processes import alive, descendants, trial_workers, wait_until
from search_samples import LAMBDA, lambda_space, mirrored, objectives, rows, temporary_files

from tune_sentcl.store.reading.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.long]

TRIALS = 130
ROUNDS = int(os.environ.get("TUNE_SENTCL_CHAOS_ROUNDS", "2"))
"""20 take about a quarter of an hour on two idle cores."""
AT_WORK = 3  # two slots, and one that waits for either


@contextmanager
def search(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The command in a session of its own; whatever of its family is left is killed."""
    here = Path(__file__).parent
    command = [sys.executable, str(here / "chaos_driver.py"), str(folder / "tries")]
    command += ["search", str(folder / "space" / "tiny.toml"), "--study", str(folder / "study")]
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    (folder / "tmp").mkdir(exist_ok=True)
    with subprocess.Popen(
        command,
        env={**kept, "TMPDIR": str(folder / "tmp"), "RAY_TMPDIR": "/tmp"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def rows_there(study: Path) -> int:
    return len(rows(study)) if (study / "study.json").is_file() else 0


def strike(process: "subprocess.Popen[str]", victim: str) -> None:
    """Kill what is named; the raylet or the driver take the whole search with them."""
    if victim == "worker":
        for pid in random.sample(trial_workers(process.pid), 1):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    elif victim == "raylet":
        family = descendants(process.pid)
        (raylet,) = [pid for pid, words in family.items() if "/raylet/raylet " in words]
        os.kill(raylet, signal.SIGKILL)
    else:
        process.send_signal(signal.SIGKILL if victim == "driver" else signal.SIGTERM)


def one_round(folder: Path, chance: random.Random) -> int:
    """A search that is struck after some rows; returns how often."""
    study = folder / "study"
    victim = chance.choice(["driver", "term", "worker", "raylet"])
    goal = min(TRIALS - 2, rows_there(study) + chance.randrange(1, 8))
    with search(folder) as process:
        wait_until(lambda: rows_there(study) >= goal or process.poll() is not None, f"{goal} rows")
        if victim == "worker":
            wait_until(lambda: trial_workers(process.pid), "a worker")
        family = set(descendants(process.pid))
        strike(process, victim)
        if victim == "worker":  # the search goes on without it, and is then ended
            there = rows_there(study)
            wait_until(lambda: rows_there(study) > there, "a row after the worker's death")
            family |= set(descendants(process.pid))
            strike(process, "term")
        process.wait(timeout=300)
        if victim in ("term", "worker"):
            assert process.returncode == 143, process.stderr and process.stderr.read()
        wait_until(lambda: not alive(family), "the end of the family")
    return 1 + (victim == "worker")


def test_kills_at_random_lose_nothing_and_repeat_only_what_ran(tmp_path: Path) -> None:
    chance = random.Random(7)
    lambdas = [n / TRIALS for n in range(TRIALS)]
    space = lambda_space(tmp_path / "space", *lambdas, ranges=LAMBDA)
    study, tries = tmp_path / "study", tmp_path / "tries"
    tries.mkdir()
    kills = 0
    for _ in range(ROUNDS):
        kills += one_round(tmp_path, chance)
        found = [row["trial_id"] for row in rows(study)]
        assert len(set(found)) == len(found)
        assert {row["status"] for row in rows(study)} <= {"finished"}
    with search(tmp_path) as process:
        _, told = process.communicate(timeout=900)
    assert process.returncode == 0, told
    assert len(rows(study)) == len(objectives(study)) == TRIALS
    assert {row["attempt"] for row in rows(study)} == {1}
    assert {row["method.lambda"] for row in rows(study)} == {
        config.dotted()["method.lambda"] for config in space.configurations
    }
    scored = {row["trial_id"] for row in Study.read(study).scores().to_pylist()}
    assert scored == set(objectives(study))
    assert len(mirrored(study)) == TRIALS
    assert temporary_files(study) == []
    assert len(list(tries.iterdir())) - TRIALS <= kills * AT_WORK
