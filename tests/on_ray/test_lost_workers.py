"""The border between a trial, its worker and the machine: nothing is lost there, nothing waits."""

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_loader
import pytest
import torch
from faulty_loader import FaultyLoader, Harm
from local_ray import start_ray
from ray.cloudpickle import register_pickle_by_value as register_by_value
from search_samples import (
    Row,
    assigned,
    lambda_space,
    numbers,
    rows,
    run_here,
    statuses,
    temporary_files,
    tiny_space,
)
from stand_in import StandIn, by

from tune_sentcl.errors import CaptureError, DeviceError, NodeDrainingError
from tune_sentcl.launchers import launcher
from tune_sentcl.on_ray.trainable import _assignment, params_of
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.search import SearchOutcome, run_search
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings

HERE = SearchOptions(launcher="local", gpus_per_trial=0.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_asked_for_and_not_there_fails_the_trial(tmp_path: Path) -> None:
    (config,) = lambda_space(tmp_path, 0.3).configurations
    loader = InputLoader(None)
    settings = WorkerSettings(None, False, 1, 1.0)
    attempt = Attempt(assigned(config, loader), loader, settings)
    with pytest.raises(
        DeviceError, match=r"--gpus-per-trial is 1, and torch .* finds no GPU"
    ) as at:
        next(attempt.points())
    assert attempt.find_device_error(at.value) is at.value
    assert attempt.failure(at.value).run_columns["device"].startswith("cuda")


@pytest.mark.parametrize(("harm", "error"), [("device", DeviceError), ("capture", CaptureError)])
def test_the_local_launcher_stops_where_its_device_is_lost(
    harm: Harm, error: type[DeviceError], tmp_path: Path
) -> None:
    """This process can have no other; the trial is left to the next command."""
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    (tmp_path / "tries").mkdir()
    loader = FaultyLoader({0.3: harm}, tmp_path / "tries")
    loader.driver = -1
    question = ask(space, None, (0,), HERE)
    swap(question, loader)
    with pytest.raises(error, match="repeat the command to continue in a new process"):
        run_search(question, str(study), launcher)
    assert rows(study) == []
    assert run_here(space, study, gpus_per_trial=0.0).ran == 2


def swap(question: Any, loader: InputLoader) -> None:
    """What the workers load by."""
    question.namer.loader = loader


def test_an_end_that_is_reported_twice_counts_once(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"

    def twice(session: Session) -> None:
        while (assignment := session.next()) is not None:
            for _ in range(2):
                session.fail(assignment.trial_id, Failure("ValueError", "planted", {}))
                session.worker_lost(assignment.trial_id, Failure("WorkerDied", "gone", {}))

    question = ask(space, None, (0,), replace(HERE, max_failures=3))
    outcome = run_search(question, str(study), by(twice))
    assert (outcome.ran, outcome.failures, outcome.ended_by) == (2, 2, "")
    assert statuses(study) == ["failed", "failed"]


@pytest.mark.parametrize("text", ["", "\n", "one\ntwo"])
def test_losses_before_the_beginning_cost_none_after_it(tmp_path: Path, text: str) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    lost = Failure("TuneError", text, {})

    def launch(session: Session) -> None:
        for has_begun in (False, True, False, True, False):
            assignment = session.next()
            assert assignment is not None
            if has_begun:
                session.started(assignment.trial_id)
            session.worker_lost(assignment.trial_id, lost)
        StandIn(study)(session)

    run_search(ask(space, None, (0,), HERE), str(study), by(launch))
    assert statuses(study) == ["finished"]


def test_a_trial_whose_machine_leaves_writes_its_state_and_goes_on_elsewhere(
    tmp_path: Path,
) -> None:
    fixed = "optimizer.epochs = 5\nevaluation.every = 4"
    space, study = lambda_space(tmp_path / "space", 0.3, fixed=fixed), tmp_path / "study"
    StudyDriver.open(study, space=space, command=["test"]).close()
    loader, settings = InputLoader(None), WorkerSettings(str(study), True, 1, 0.0)
    settings = replace(settings, save_every=600.0)
    given = assigned(space.configurations[0], loader)
    asked = iter([False, *5 * [False], True])
    with (
        closing(Attempt(given, loader, settings, lambda: next(asked)).points()) as points,
        pytest.raises(NodeDrainingError, match="at step 6"),
    ):
        list(points)
    assert Study.read(study).states() == {given.trial_id}
    with pytest.raises(NodeDrainingError):  # it would be the next one there
        next(Attempt(given, loader, settings, lambda: True).points())
    outcome = run_here(space, study)
    assert outcome.ran == 1
    (row,) = rows(study)
    assert row["notes"].startswith("continued from step 6")
    run_here(space, tmp_path / "whole")
    assert numbers(study) == numbers(tmp_path / "whole")


def test_moves_cost_no_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"

    def moves(session: Session) -> None:
        while not session.finished:
            assignment = session.next()
            assert assignment is not None
            session.started(assignment.trial_id)
            session.node_draining(assignment.trial_id)
            session.node_draining(assignment.trial_id)  # an end that is reported twice counts once

    question = ask(space, None, (0,), replace(HERE, retries=0))
    outcome = run_search(question, str(study), by(moves))
    said = capsys.readouterr().err
    assert said.count("moves to another node, because its node is draining") == 20
    assert outcome.failures == 1, "without end it would go round for ever"
    assert rows(study)[0]["error_type"] == "NodeDrainingError"


def test_a_failed_capture_costs_no_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt goes on without graphs; one that fails so again has lost its worker.

    After the second trial whose capture failed, further ones do not try.
    """
    space, study = lambda_space(tmp_path / "space", 0.3, 0.5, 0.7), tmp_path / "study"
    monkeypatch.setenv(CaptureError.variable, "1")
    failed, seen = Failure("CaptureError", "a CUDA graph could not be captured: full", {}), []

    def launch(session: Session) -> None:
        first = None
        while (assignment := session.next()) is not None:
            name, first = assignment.trial_id, first or assignment.trial_id
            seen.append((name == first, assignment.graphs))
            session.started(name)
            if name == first or assignment.graphs:
                session.capture_failed(name, failed)
                session.capture_failed(name, failed)  # an end that is reported twice counts once
                continue
            assert _assignment(params_of(assignment)) == assignment
            next(Attempt(assignment, session.loader, settings).points())
            assert os.environ[CaptureError.variable] == CaptureError.failed
            session.fail(name, failed)

    settings = WorkerSettings(None, False, 1, 0.0)
    run_search(ask(space, None, (0,), replace(HERE, retries=0)), str(study), by(launch))
    assert sorted(seen) == [*2 * [(False, False)], (False, True), (True, False), (True, True)]
    assert sorted(row["error_text"] for row in rows(study)) == [
        *2 * [failed.error_text],
        f"each of 1 tries lost its worker; the last error: {failed.error_text}",
    ]
    said = capsys.readouterr().err
    assert said.count("continues without CUDA graphs in another worker") == 2
    assert said.count("further trials train without CUDA graphs, because two captures failed") == 1


# On a real Ray: workers are harmed for lambdas of their own.


def harmed(folder: Path, harms: dict[float, Harm], **options: Any) -> SearchOutcome:
    """A search on Ray of these lambdas and of one that nobody harms."""
    start_ray()
    register_by_value(faulty_loader)
    space = lambda_space(folder / "space", *harms, 0.9)
    (folder / "tries").mkdir()
    question = ask(space, None, (0,), SearchOptions(**{"gpus_per_trial": 0.0, **options}))
    swap(question, FaultyLoader(harms, folder / "tries"))
    return run_search(question, str(folder / "study"), launcher)


def by_lambda(folder: Path) -> dict[float, Row]:
    return {row["method.lambda"]: row for row in rows(folder / "study")}


def tries(folder: Path, knob: float) -> list[str]:
    """The processes that have tried a trial, in order."""
    return [p.name.split("-")[2] for p in sorted((folder / "tries").glob(f"{knob}-*"))]


@pytest.mark.ray
@pytest.mark.long
def test_each_harm_costs_its_own_trial_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The device's error is raised by a stand-in on the CPU; the `gpu` test raises CUDA's own."""
    harms: dict[float, Harm] = {0.2: "device", 0.3: "die once", 0.4: "other data"}
    harms |= {0.5: "die", 0.6: "capture"}
    outcome = harmed(tmp_path, harms, retries=1)
    assert (outcome.ran, outcome.failures, outcome.timed_out) == (6, 3, 0)
    ended = by_lambda(tmp_path)
    assert {knob: row["error_type"] for knob, row in ended.items()} == {
        0.2: "DeviceError",
        0.3: None,
        0.4: "OtherInputsError",
        0.5: "WorkerLostError",
        0.6: None,
        0.9: None,
    }
    assert "each of 2 tries lost its worker" in ended[0.2]["error_text"]
    assert "an illegal memory access" in ended[0.2]["error_text"]
    assert ended[0.4]["data_fingerprint"] in ended[0.4]["error_text"]
    died = ended[0.5]["error_text"]
    assert died.startswith("each of 2 tries lost its worker; the last error: The actor died")
    assert "worker process has died" in died and "\x1b" not in died
    workers = {knob: tries(tmp_path, knob) for knob in ended}
    twice = {0.2: 2, 0.3: 2, 0.5: 2, 0.6: 2}
    assert {knob: len(w) for knob, w in workers.items()} == {**dict.fromkeys(ended, 1), **twice}
    assert all(len(set(w)) == len(w) for w in workers.values()), "a fresh worker each time"
    assert {row["attempt"] for row in ended.values()} == {1}
    said = capsys.readouterr().err
    assert said.count("lost its worker and is tried once more") == 3
    study = tmp_path / "study"
    assert {key[0] for key in numbers(study)} == {
        ended[knob]["trial_id"] for knob in (0.3, 0.6, 0.9)
    }
    assert temporary_files(study) == []


@pytest.mark.ray
@pytest.mark.long
def test_a_trial_that_hangs_is_ended_after_its_time(tmp_path: Path) -> None:
    """On a busy machine the other trial may exceed these seconds, too."""
    outcome = harmed(tmp_path, {0.1: "hang"}, trial_timeout=20.0)
    assert outcome.ran == 2
    row = by_lambda(tmp_path)[0.1]
    assert row["error_type"] == "TrialTimeoutError"
    assert "the trial was given 20 s, and did not return in time" in row["error_text"]
    assert len(tries(tmp_path, 0.1)) == 1


@pytest.mark.gpu
@pytest.mark.ray
def test_a_lost_context_costs_a_worker_and_no_trial(tmp_path: Path) -> None:
    """The error is CUDA's own: an index outside of its tensor, which no later call survives."""
    outcome = harmed(tmp_path, {0.1: "cuda assert once"}, gpus_per_trial=1.0)
    assert (outcome.ran, outcome.failures) == (2, 0)
    first, second = tries(tmp_path, 0.1)
    assert first != second
    assert {row["device"].partition(" ")[0] for row in by_lambda(tmp_path).values()} == {"cuda"}


@pytest.mark.ray
@pytest.mark.long
def test_a_search_on_ray_ends_when_its_time_is_over(tmp_path: Path) -> None:
    outcome = harmed(tmp_path, {0.1: "hang"}, max_time=8.0, max_concurrent=1)
    assert outcome.ended_by == "the time of --max-time is over"
    assert (outcome.failures, outcome.to_run) == (0, 2 - outcome.ran)
    assert 0.1 not in by_lambda(tmp_path)


@pytest.mark.ray
@pytest.mark.long
def test_trap_a_worker_that_is_not_reset_in_time_loses_no_trial(tmp_path: Path) -> None:
    """Tune ends such a trial without telling any callback: the search would wait for ever."""
    fixed = "evaluation.every = 1\noptimizer.epochs = 4"
    space = tiny_space(tmp_path / "space", "grid.method.lambda = [0.1, 0.2, 0.3]", fixed=fixed)
    study = tmp_path / "study"
    loud = """
import contextlib
from tune_sentcl import cli
from tune_sentcl.on_ray import launcher
from tune_sentcl.tuning.session import Session
launcher.quiet_ray_logging = contextlib.nullcontext
take, seen = Session.progress, set()
def stopped_once(self, name, progress):
    goes_on, first = take(self, name, progress), name not in seen
    seen.add(name)
    return goes_on and not first
Session.progress = stopped_once
cli.main()
"""
    command = [sys.executable, "-c", loud, "search", space.source, "--study", str(study)]
    command += ["--max-concurrent", "1", "--address", "local"]
    # Tune does not wait at all for the thread of a trial that it has stopped.
    environment = {**os.environ, "TUNE_FUNCTION_THREAD_TIMEOUT_S": "0"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "requires reset_config" in done.stderr, "the trap was not met"
    assert statuses(study) == ["finished"] * 3
