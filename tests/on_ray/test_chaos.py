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
from search_samples import (
    LAMBDA,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    rows,
    run_here,
    temporary_files,
)
from table_reader import reading

from tune_sentcl.store.study import Study
from tune_sentcl.tuning import question as question_module

pytestmark = [pytest.mark.ray, pytest.mark.long]

TRIALS, SAMPLED = 130, 24
ROUNDS = int(os.environ.get("TUNE_SENTCL_CHAOS_ROUNDS", "2"))
"""20 take about a quarter of an hour on two idle cores."""
AT_WORK = 3  # two slots, and one that waits for either


@contextmanager
def search(folder: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in a session of its own; whatever of its family is left is killed."""
    here = Path(__file__).parent
    command = [sys.executable, str(here / "chaos_driver.py"), str(folder / "tries")]
    command += ["search", str(folder / "space" / "tiny.toml"), "--study", str(folder / "study")]
    command += options
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


def ends_there(study: Path) -> int:
    """How many stages and whole trainings have ended."""
    found = rows(study) if (study / "study.json").is_file() else []
    return sum(len(row["stages"] or ()) + (row["status"] == "finished") for row in found)


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


def one_round(folder: Path, chance: random.Random, most: int, *options: str) -> int:
    """A search that is struck after some ends; returns how often."""
    study = folder / "study"
    victim = chance.choice(["driver", "term", "worker", "raylet"])
    goal = min(most - 2, ends_there(study) + chance.randrange(1, 8))
    with search(folder, *options) as process:
        wait_until(lambda: ends_there(study) >= goal or process.poll() is not None, f"{goal} ends")
        if victim == "worker":
            wait_until(lambda: trial_workers(process.pid), "a worker")
        family = set(descendants(process.pid))
        strike(process, victim)
        if victim == "worker":  # the search goes on without it, and is then ended
            there = ends_there(study)
            wait_until(lambda: ends_there(study) > there, "an end after the worker's death")
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
    with reading(study):
        for _ in range(ROUNDS):
            kills += one_round(tmp_path, chance, TRIALS)
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


def test_kills_between_stages_change_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finds a stage that is decided by what a killed driver had in its memory alone."""
    options = ("--samples", str(SAMPLED), "--sampler", "random", "--seeds", "0,1")
    fixed = "optimizer.epochs = 4"
    space = lambda_space(tmp_path / "space", 0.5, ranges=LAMBDA, fixed=fixed)
    (tmp_path / "tries").mkdir()
    chance, most = random.Random(11), SAMPLED + SAMPLED // 4
    with reading(tmp_path / "study"):
        for _ in range(ROUNDS):
            one_round(tmp_path, chance, most, *options)
        with search(tmp_path, *options) as process:
            _, told = process.communicate(timeout=900)
    assert process.returncode == 0, told
    monkeypatch.setattr(question_module, "first_shares", lambda *_: (0.25, 1.0))
    here = tmp_path / "here"
    run_here(space, here, samples=SAMPLED, sampler="random", seeds=(0, 1), scheduler="halving")
    study = tmp_path / "study"
    assert numbers(study) == numbers(here)
    columns = ("trial_id", "status", "steps", "stages")
    found, alone = (
        {tuple(map(str, map(row.get, columns))) for row in rows(s)} for s in (study, here)
    )
    assert found == alone and sum("pruned" in row for row in found) > SAMPLED // 2
