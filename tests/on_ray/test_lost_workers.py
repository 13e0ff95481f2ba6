"""The border between a trial, its worker and the machine: nothing is lost there, nothing waits."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_loader
import pytest
import torch
from faulty_loader import FaultyLoader, Harm
from local_ray import start_ray
from model_samples import save_roberta
from ray.cloudpickle import register_pickle_by_value as register_by_value
from search_samples import (
    Row,
    assigned,
    lambda_space,
    rows,
    run_here,
    run_planted,
    statuses,
    temporary_files,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl.errors import ConfigError, DeviceError, OtherInputsError
from tune_sentcl.launch import run_prepared
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import SearchOutcome
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings

HERE = WorkerSettings(None, False, 1, 0.0)


def test_a_worker_that_reads_other_bytes_names_both_fingerprints(tmp_path: Path) -> None:
    (config,) = lambda_space(tmp_path, 0.3).configurations
    loader = InputLoader(None)
    given = assigned(config, loader)
    ours = given.fingerprints
    theirs = replace(ours, data="d" * 16, checkpoint="c" * 16)
    with pytest.raises(OtherInputsError) as caught:
        next(Attempt(replace(given, fingerprints=theirs), loader, HERE).points())
    for name in ("data", "checkpoint"):
        both = f"{name} {getattr(ours, name)} (the driver's: {getattr(theirs, name)})"
        assert both in str(caught.value)
    assert "selection" not in str(caught.value)


def test_weights_that_are_replaced_under_a_search_fail_its_trials(tmp_path: Path) -> None:
    """They would be scored under the name of the old ones."""
    from safetensors.torch import load_file, save_file

    folder = save_roberta(tmp_path / "roberta")
    changes = {"encoder.checkpoint": str(folder), "encoder.max_length": 16}
    space = tiny_space(tmp_path / "space").with_overrides(changes)
    study = tmp_path / "study"
    options = SearchOptions(launcher="local", gpus_per_trial=0.0)
    prepared = prepare(space, None, (0,), options)
    weights = load_file(folder / "model.safetensors")
    save_file({name: value + 1 for name, value in weights.items()}, folder / "model.safetensors")
    outcome = run_prepared(prepared, str(study))
    assert (outcome.ran, outcome.failures) == (1, 1)
    (row,) = rows(study)
    assert row["error_type"] == "OtherInputsError"
    assert row["checkpoint_fingerprint"] in row["error_text"]
    assert len(Study.read(study).scores()) == 0
    assert {path.stem for path in (study / "scores").iterdir()} <= {"all"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_asked_for_and_not_there_fails_the_trial(tmp_path: Path) -> None:
    (config,) = lambda_space(tmp_path, 0.3).configurations
    loader = InputLoader(None)
    attempt = Attempt(assigned(config, loader), loader, replace(HERE, gpus=1.0))
    with pytest.raises(
        DeviceError, match=r"--gpus-per-trial is 1, and torch .* finds no GPU"
    ) as at:
        next(attempt.points())
    assert attempt.find_device_error(at.value) is at.value
    assert attempt.failure(at.value).run_columns["device"].startswith("cuda")


def test_two_gpus_for_a_trial_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--gpus-per-trial: 2: must be 1 or less"):
        SearchOptions(gpus_per_trial=2.0).check(lambda_space(tmp_path, 0.3))


def test_the_local_launcher_stops_where_its_device_is_lost(tmp_path: Path) -> None:
    """This process can have no other; the trial is left to the next command."""
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    (tmp_path / "tries").mkdir()
    loader = FaultyLoader({0.3: "device"}, tmp_path / "tries")
    loader.driver = -1
    prepared = prepare(space, None, (0,), SearchOptions(launcher="local", gpus_per_trial=0.0))
    swap(prepared, loader)
    with pytest.raises(DeviceError, match="repeat the command to go on in a new process"):
        run_prepared(prepared, str(study))
    assert rows(study) == []
    assert run_here(space, study, gpus_per_trial=0.0).ran == 2


def swap(prepared: Any, loader: InputLoader) -> None:
    """What the workers load by."""
    prepared.proposals.namer.loader = loader


def test_an_end_that_is_reported_twice_counts_once(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"

    def twice(session: Session) -> None:
        while (assignment := session.next()) is not None:
            for _ in range(2):
                session.fail(assignment.trial_id, Failure("ValueError", "planted", {}))
                session.worker_lost(assignment.trial_id, Failure("WorkerDied", "gone", {}))

    prepared = prepare(space, None, (0,), SearchOptions(launcher="local", max_failures=3))
    outcome = run_prepared(prepared, str(study), twice)
    assert (outcome.ran, outcome.failures, outcome.ended_by) == (2, 2, "")
    assert statuses(study) == ["failed", "failed"]


def test_a_trial_that_no_worker_has_begun_is_tried_more_often(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    refusals = iter(range(3))

    def launch(session: Session) -> None:
        while not session.finished:
            assignment = session.next()
            assert assignment is not None
            if next(refusals, None) is None:
                StandIn(study)._work(session, assignment)
            else:
                session.worker_lost(assignment.trial_id, Failure("TuneError", "no reset", {}))

    prepared = prepare(space, None, (0,), SearchOptions(launcher="local", gpus_per_trial=0.0))
    run_prepared(prepared, str(study), launch)
    assert statuses(study) == ["finished"]
    assert run_planted(space, study)[0].ran == 0


# On a real Ray: workers are harmed for lambdas of their own.


def harmed(folder: Path, harms: dict[float, Harm], **options: Any) -> SearchOutcome:
    """A search on Ray of these lambdas and of one that nobody harms."""
    start_ray()
    register_by_value(faulty_loader)
    space = lambda_space(folder / "space", *harms, 0.9)
    (folder / "tries").mkdir()
    prepared = prepare(space, None, (0,), SearchOptions(**{"gpus_per_trial": 0.0, **options}))
    swap(prepared, FaultyLoader(harms, folder / "tries"))
    return run_prepared(prepared, str(folder / "study"))


def by_lambda(folder: Path) -> dict[float, Row]:
    return {row["method.lambda"]: row for row in rows(folder / "study")}


def tries(folder: Path, knob: float) -> list[str]:
    """The processes that have tried a trial, in order."""
    return [p.name.split("-")[2] for p in sorted((folder / "tries").glob(f"{knob}-*"))]


@pytest.mark.ray
@pytest.mark.long
def test_after_a_device_error_a_trial_is_tried_again_in_a_fresh_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is raised by a stand-in on the CPU; `gpu` tests raise CUDA's own."""
    outcome = harmed(tmp_path, {0.2: "device", 0.3: "die once"}, retries=1)
    found = by_lambda(tmp_path)
    assert (outcome.ran, outcome.failures) == (3, 1)
    ends = {knob: row["status"] for knob, row in found.items()}
    assert ends == {0.2: "failed", 0.3: "finished", 0.9: "finished"}
    for knob in (0.2, 0.3):
        workers = tries(tmp_path, knob)
        assert len(workers) == len(set(workers)) == 2
        assert found[knob]["attempt"] == 1
    assert found[0.2]["error_type"] == "DeviceError"
    assert "each of 2 tries lost its worker" in found[0.2]["error_text"]
    assert "an illegal memory access" in found[0.2]["error_text"]
    told = capsys.readouterr().err
    assert told.count("lost its worker and is tried once more") == 2
    assert temporary_files(tmp_path / "study") == []


@pytest.mark.ray
@pytest.mark.long
def test_a_trial_that_hangs_is_ended_and_one_of_other_data_fails(tmp_path: Path) -> None:
    outcome = harmed(tmp_path, {0.1: "hang", 0.2: "other data"}, trial_timeout=40.0)
    found = by_lambda(tmp_path)
    assert (outcome.ran, outcome.failures, outcome.timed_out) == (3, 1, 1)
    assert found[0.1]["error_type"] == "TrialTimeoutError"
    assert "the trial was given 40 s, and did not come back" in found[0.1]["error_text"]
    assert found[0.2]["error_type"] == "OtherInputsError"
    assert found[0.2]["data_fingerprint"] in found[0.2]["error_text"]
    assert found[0.9]["status"] == "finished"
    assert {len(tries(tmp_path, knob)) for knob in found} == {1}
    assert {s["trial_id"] for s in Study.read(tmp_path / "study").scores().to_pylist()} == {
        found[0.9]["trial_id"]
    }


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


@pytest.mark.parametrize("text", ["", "\n", "one\ntwo"])
def test_a_loss_before_the_beginning_costs_none_after_it(tmp_path: Path, text: str) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    lost = Failure("TuneError", text, {})

    def launch(session: Session) -> None:
        for begun in (False, True):
            assignment = session.next()
            assert assignment is not None
            if begun:
                session.started(assignment.trial_id)
            session.worker_lost(assignment.trial_id, lost)
        StandIn(study)(session)

    prepared = prepare(space, None, (0,), SearchOptions(launcher="local", gpus_per_trial=0.0))
    run_prepared(prepared, str(study), launch)
    assert statuses(study) == ["finished"]
