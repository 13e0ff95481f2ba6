"""The Ray launcher on a local Ray: what it does as the local one, and where Tune has traps."""

import itertools
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from local_ray import start_ray
from optuna.trial import TrialState
from processes import alive, beside, trial_workers, wait_until
from ray._private import state as ray_state
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from search_samples import (
    LAMBDA,
    NoInputs,
    Row,
    checkpoints,
    lambda_space,
    mirrored,
    numbers,
    objectives,
    reported,
    rows,
    run_here,
    run_on_ray,
    run_planted,
    temporary_files,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl.analysis import configurations
from tune_sentcl.errors import ResourceError
from tune_sentcl.history import Assignment
from tune_sentcl.objective import DEFAULT
from tune_sentcl.on_ray import launcher
from tune_sentcl.on_ray.launcher import _SessionScheduler, _SessionSearcher, _TrialEndCallback
from tune_sentcl.on_ray.survey import cluster_nodes
from tune_sentcl.on_ray.trainable import params_of
from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning import prepare as prepare_module
from tune_sentcl.tuning.budget import Budget
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.resources import Bundle, trials_at_a_time
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import open_session
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.timing import TrialSeconds, TrialTimer

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    start_ray()
    yield


def actor_pids() -> set[int]:
    """Every process that ever was a trial's worker on this Ray."""
    return {actor["Pid"] for actor in ray_state.actors().values() if actor["Pid"]}


def test_trap_the_searcher_is_pickled_although_its_session_holds_a_lock(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3)
    prepared = prepare(space, None, (0,), SearchOptions(launcher="local"))
    with open_session(prepared, str(tmp_path / "study"), Budget()) as session:
        pickle.dumps(_SessionSearcher(session, lambda: 2))
        pickle.dumps(_TrialEndCallback(session, 0.0))


@pytest.mark.parametrize(
    ("goes_on", "last", "expected"),
    [
        (True, "", TrialScheduler.CONTINUE),
        (False, "", TrialScheduler.STOP),
        (False, "final", TrialScheduler.CONTINUE),
        (False, "paused", TrialScheduler.CONTINUE),
    ],
)
def test_trap_a_trial_that_is_stopped_at_its_last_report_ends_by_itself(
    goes_on: bool, last: str, expected: str
) -> None:
    session: Any = SimpleNamespace(progress=lambda name, point: goes_on)
    trial = Trial("never", config={"trial": "a"}, stub=True)
    report = SimpleNamespace(final=last == "final", paused=last == "paused")
    found = _SessionScheduler(session).on_trial_result(None, trial, {"progress": report})
    assert found == expected


def test_trap_a_trial_that_goes_on_is_not_taken_for_the_lost_worker_of_its_earlier_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune tells the end of the earlier one after the same trial was handed out again."""
    with_a_pause(monkeypatch)
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA), tmp_path / "study"
    prepared = prepare(space, None, (0,), SearchOptions(launcher="local", trials=4))

    def ended(one: Assignment) -> Any:
        facts = {"trial_id": one.attempt_files, "config": params_of(one), "error_file": None}
        return SimpleNamespace(is_finished=lambda: True, **facts)

    with open_session(prepared, str(study), Budget()) as session:
        callback, paused = _TrialEndCallback(session, 0.0), []
        for _ in range(5):  # the first is the grid's
            assignment = session.next()
            assert assignment is not None
            paused.append(assignment)
            StandIn(study)._work(session, assignment)
        again = session.next()
        assert again is not None and again.until == 1
        assert again.trial_id in [one.trial_id for one in paused]
        trials = list(map(ended, paused))
        callback.on_step_end(0, trials)
        assert session.runs(again.trial_id, again.attempt_files)
        callback.on_step_end(0, [*trials, ended(again)])
        assert session.num_running == 0
        retried = session.next()
        assert retried is not None and retried.trial_id == again.trial_id


def with_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sampled trials pause after a quarter, however short they are."""
    monkeypatch.setattr(prepare_module, "first_shares", lambda steps: (0.25, 1.0))
    monkeypatch.setattr(TrialTimer, "trial", lambda *_: TrialSeconds(0.0, 1.0, 0.0, 1.0))


def test_trap_a_free_worker_leaves_a_trial_to_the_worker_that_starts_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that failed before comes last; one that has waited too long comes next."""
    space, study = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7), tmp_path / "study"
    run_planted(space, study, StandIn(study, lambda config: "fail"))
    failed = [row["trial_id"] for row in rows(study)]
    prepared = prepare(space, None, (0,), SearchOptions(launcher="local"))
    with open_session(prepared, str(study), Budget()) as session:
        obeying = _SessionScheduler(session)
        names = ["new", *failed, "newer"]
        configs = [{"trial": name} for name in names]
        trials = [Trial("never", config=config, stub=True) for config in configs]
        for trial in trials:
            obeying.on_trial_add(None, trial)
        assert obeying.choose_trial_to_run(None) is trials[-1]
        trials[-1].set_status(Trial.RUNNING)
        assert obeying.choose_trial_to_run(None) is trials[0]
        trials[0].set_status(Trial.RUNNING)
        assert obeying.choose_trial_to_run(None) is trials[3]
        monkeypatch.setattr(launcher, "_STARTING_S", -1.0)
        assert obeying.choose_trial_to_run(None) is trials[1]


@pytest.mark.parametrize(
    ("cpus", "gpus", "slots"), [(1, 0.0, 2), (2, 0.0, 1), (3, 0.0, 0), (1, 1.0, 0)]
)
def test_the_slots_are_the_trials_that_fit_the_nodes(cpus: int, gpus: float, slots: int) -> None:
    assert [node.slots(Bundle(cpus, gpus)) for node in cluster_nodes()] == [slots]
    options = SearchOptions(cpus_per_trial=cpus, gpus_per_trial=gpus)
    assert trials_at_a_time(options, cluster_nodes()) == max(1, slots)


def test_trials_on_reused_actors_give_the_local_launchers_scores_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing that a trial leaves in its process may reach the next one there.

    The rows lie under a relative path. No more trials are drawn than run side by side: those that
    are drawn too early are drawn without the others' scores.
    """
    lines = [f"a man plays {i},someone plays {i},{i % 3}" for i in range(48)]
    (tmp_path / "pairs.csv").write_text("\n".join(["premise,hypothesis,label", *lines]) + "\n")
    monkeypatch.chdir(tmp_path)
    fixed = 'evaluation.data = "toy"\nevaluation.every = 1'
    source = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7, ranges=LAMBDA, fixed=fixed).source
    space = load_space(source, {"data.source": "pairs.csv"})
    under_way, draw = [], Session.next

    def spied(session: Session) -> Any:
        under_way.append(session.num_running)
        return draw(session)

    monkeypatch.setattr(Session, "next", spied)
    before = actor_pids()
    asked: dict[str, Any] = {"trials": 2, "max_concurrent": 9, "max_time": 500.0}
    outcome = run_on_ray(space, tmp_path / "ray", seeds=(0, 1), **asked)
    assert (outcome.trials, outcome.ran, outcome.failures) == (10, 10, 0)
    assert max(under_way) <= sum(node.slots(Bundle(1, 0.0)) for node in cluster_nodes())
    # Two slots, one that waits for either, and one to spare: far from one a trial.
    assert 1 <= len(actor_pids() - before) <= 4
    told = capfd.readouterr()
    assert told.out == "", "Ray adds nothing to stdout"
    for noise in ("Configuration for experiment", "FileNotFoundError", "Traceback", "WARNING"):
        assert noise not in told.err
    found = rows(tmp_path / "ray")
    assert {(row["cpus"], row["data_source"]) for row in found} == {(1, "pairs.csv")}
    assert [row["origin"] for row in found].count("sampler") == 4
    assert temporary_files(tmp_path / "ray") == []
    best = configurations(Study.read(tmp_path / "ray"), (DEFAULT,))["configuration"].iloc[0]
    (kept,) = checkpoints(tmp_path / "ray")
    assert {row["trial_id"]: row["configuration"] for row in found}[kept] == best
    run_here(space, tmp_path / "here")
    assert len(objectives(tmp_path / "here")) == 3
    assert numbers(tmp_path / "here").items() <= numbers(tmp_path / "ray").items()
    assert points(tmp_path / "here") <= points(tmp_path / "ray")
    assert run_on_ray(space, tmp_path / "here").ran == 0


def points(study: Path) -> set[tuple[object, ...]]:
    columns = ["trial_id", "step", "metric", "value"]
    return {
        tuple(point.values()) for point in Study.read(study).curves().select(columns).to_pylist()
    }


@pytest.mark.long
def test_workers_measure_kept_weights_and_train_again_only_where_they_are_asked_to(
    tmp_path: Path,
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3, 0.7), tmp_path / "study"
    run_on_ray(space, study)
    values = objectives(study)
    (kept,) = checkpoints(study)
    (other,) = values.keys() - {kept}
    asked = space.with_overrides({"evaluation.suites": ["sts", "transfer"]})
    for retrain, names, attempt in ((False, {kept}, 1), (True, {kept, other}, 2)):
        outcome = run_on_ray(asked, study, retrain=retrain)
        assert (outcome.ran, outcome.failures) == (1, 0)
        assert outcome.needs_retraining == (() if retrain else (other,))
        assert {key[0] for key in numbers(study) if key[1] == "SST2"} == names
        attempts = {row["trial_id"]: row["attempt"] for row in rows(study)}
        assert attempts == {kept: 1, other: attempt}
    assert objectives(study) == pytest.approx(values, abs=1e-3)


@pytest.mark.long
def test_what_a_stage_stops_is_pruned_and_what_goes_on_ends_as_without_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure at the beginning has no number that the others could be compared with."""
    with_a_pause(monkeypatch)
    fixed = "evaluation.every = 1\noptimizer.epochs = 4"
    ranges = "optimizer.lr = { choices = [1e30, 1e-3, 1e-9, 2e-9] }"
    space = tiny_space(
        tmp_path / "space", "grid.method.lambda = [0.5]", fixed=fixed, ranges=ranges
    )
    study, here = tmp_path / "study", tmp_path / "here"
    asked: dict[str, Any] = {"scheduler": "halving", "trials": 4, "max_concurrent": 1}
    outcome = run_on_ray(space, study, **asked)
    # Four first stages, one whole training, and the grid.
    assert (outcome.ran, outcome.failures) == (6, 1)
    found = {row["optimizer.lr"]: row for row in rows(study) if row["origin"] == "sampler"}
    assert found[1e30]["status"] == "failed"
    assert found[1e30]["error_type"] == "NonFiniteError"
    scores = {lr: row["stages"][0]["value"] for lr, row in found.items() if row["stages"]}
    assert scores.keys() == {1e-3, 1e-9, 2e-9}
    best = max(scores, key=lambda lr: scores[lr])
    assert {row["steps"] for row in found.values() if row["status"] == "pruned"} == {2}
    assert [lr for lr, row in found.items() if row["status"] == "finished"] == [best]
    assert (found[best]["steps"], found[best]["attempt"]) == (8, 1)
    whole = {row["trial_id"] for row in rows(study) if row["status"] == "finished"}
    assert {key[0] for key in numbers(study)} == whole and checkpoints(study) <= whole
    told = {t.params["optimizer.lr"]: t for t in mirrored(study) if "optimizer.lr" in t.params}
    states = {"failed": TrialState.FAIL, "finished": TrialState.COMPLETE}
    for lr, row in found.items():
        assert told[lr].state == states.get(row["status"], TrialState.PRUNED)
        assert told[lr].intermediate_values == ({25: scores[lr]} if lr in scores else {})
    one_after_another([row for row in rows(study) if row["trial_id"] != found[best]["trial_id"]])
    run_here(space, here, **{**asked, "max_concurrent": None})
    assert numbers(here) == numbers(study)
    assert points(here) == points(study)


def one_after_another(found: list[Row]) -> None:
    timed = [row for row in found if row["started_at"] is not None]
    spans = sorted((row["started_at"].timestamp(), row["wall_seconds"]) for row in timed)
    for (start, seconds), (following, _) in itertools.pairwise(spans):
        assert start + seconds <= following + 0.1  # two clocks


@pytest.mark.long
def test_trap_a_worker_that_dies_fails_its_trial_and_the_search_goes_on(tmp_path: Path) -> None:
    grid = "grid.optimizer.epochs = [5000, 1]"
    ranges = "optimizer.epochs = { low = 1, high = 9999 }"
    fixed = "evaluation.every = 2"
    space = tiny_space(tmp_path / "space", grid, fixed=fixed, ranges=ranges)
    study = tmp_path / "study"
    doomed = NoInputs().load(space.configurations[0]).trial_id(space.configurations[0])

    def kill() -> None:
        seen: set[str | None] = {None}
        for _ in range(3):  # it is tried twice more
            wait_until(
                lambda: reported(study).get(doomed) not in seen, "the long trial's first point"
            )
            seen.add(reported(study).get(doomed))
            workers = trial_workers()
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not alive(set(workers)), "their end")  # noqa: B023

    with beside(kill):
        outcome = run_on_ray(space, study, max_concurrent=1)
    assert (outcome.ran, outcome.failures) == (2, 1)
    found = {row["optimizer.epochs"]: row for row in rows(study)}
    assert found[1]["status"] == "finished"
    assert found[5000]["status"] == "failed"
    assert found[5000]["error_type"].endswith("Error")
    text = found[5000]["error_text"]
    first = text.partition("\n")[0]
    assert first.startswith("each of 3 tries lost its worker") and "Traceback" not in first
    assert "worker process has died" in text and "\x1b" not in text
    assert {key[0] for key in numbers(study)} == {found[1]["trial_id"]}
    told = {t.params["optimizer.epochs"]: t.state for t in mirrored(study)}
    assert told == {5000: TrialState.FAIL, 1: TrialState.COMPLETE}


def test_trap_what_this_machine_lacks_is_refused_and_nothing_is_left_pending(
    tmp_path: Path,
) -> None:
    space = lambda_space(tmp_path / "space", 0.3)
    with pytest.raises(ResourceError, match="must fit this machine"):
        run_on_ray(space, tmp_path / "study", cpus_per_trial=3, gpus_per_trial=1.0)
    assert not (tmp_path / "study").exists()
