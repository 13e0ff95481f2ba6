"""The Ray launcher on a local Ray: what it does as the local one, and where Tune has traps."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from local_ray import start_ray
from ray._private import state as ray_state
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from search_samples import (
    LAMBDA,
    checkpoints,
    lambda_space,
    numbers,
    objectives,
    rows,
    run_here,
    run_on_ray,
    run_planted,
    statuses,
    temporary_files,
)
from stand_in import StandIn

from tune_sentcl import measure
from tune_sentcl.analysis import configurations
from tune_sentcl.errors import ResourceError
from tune_sentcl.history import Assignment
from tune_sentcl.launch import search
from tune_sentcl.objective import DEFAULT
from tune_sentcl.on_ray import launcher
from tune_sentcl.on_ray.launcher import _SessionScheduler, _TrialEndCallback
from tune_sentcl.on_ray.preflight import cluster_nodes
from tune_sentcl.on_ray.trainable import params_of
from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning import question as question_module
from tune_sentcl.tuning.machine import Bundle
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.search import open_session
from tune_sentcl.tuning.session import Limits, Session
from tune_sentcl.watch.watcher import Watcher

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    start_ray()
    yield


def actor_pids() -> set[int]:
    """Every process that ever was a trial's worker on this Ray."""
    return {actor["Pid"] for actor in ray_state.actors().values() if actor["Pid"]}


@pytest.mark.long
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
    question = ask(space, None, (0,), SearchOptions(launcher="local", samples=4))

    def ended(one: Assignment) -> Any:
        facts = {"trial_id": one.attempt_files, "config": params_of(one), "error_file": None}
        return SimpleNamespace(is_finished=lambda: True, **facts)

    with open_session(question, str(study), Limits()) as session:
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


@pytest.mark.long
def test_trap_a_closed_pipe_passes_through_tune(tmp_path: Path) -> None:
    """Tune raises an error of its own for those of its hooks."""

    class Unread(Watcher):
        def ended(self, *_: Any) -> None:
            raise BrokenPipeError

    space, options = lambda_space(tmp_path / "space", 0.3), SearchOptions(scheduler="none")
    with pytest.raises(BrokenPipeError):
        search(space, tmp_path / "study", seeds=(0,), options=options, watcher=Unread())
    assert statuses(tmp_path / "study") == ["finished"]


def with_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sampled trials pause after a quarter, however short they are."""
    monkeypatch.setattr(question_module, "first_shares", lambda *_: (0.25, 1.0))


def test_trap_a_free_worker_leaves_a_trial_to_the_worker_that_starts_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that failed before comes last; one that has waited too long comes next."""
    space, study = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7), tmp_path / "study"
    run_planted(space, study, StandIn(study, lambda config: "fail"))
    failed = [row["trial_id"] for row in rows(study)]
    question = ask(space, None, (0,), SearchOptions(launcher="local"))
    with open_session(question, str(study), Limits()) as session:
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


def test_trials_on_reused_actors_give_the_local_launchers_scores_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing that a trial leaves in its process may reach the next one there.

    The rows lie under a relative path. Stages decide the same, whichever trial comes first.
    """
    lines = [f"a man plays {i},someone plays {i},{i % 3}" for i in range(48)]
    (tmp_path / "pairs.csv").write_text("\n".join(["premise,hypothesis,label", *lines]) + "\n")
    monkeypatch.chdir(tmp_path)
    with_a_pause(monkeypatch)
    fixed = 'evaluation.data = "toy"\nevaluation.every = 1\noptimizer.epochs = 4'
    source = lambda_space(tmp_path / "space", 0.1, 0.7, ranges=LAMBDA, fixed=fixed).source
    space = load_space(source, {"data.source": "pairs.csv"})
    study, here = tmp_path / "ray", tmp_path / "here"
    under_way, draw = [], Session.next

    def spied(session: Session) -> Any:
        under_way.append(session.num_running)
        return draw(session)

    monkeypatch.setattr(Session, "next", spied)
    before = actor_pids()
    asked: dict[str, Any] = {"samples": 4, "sampler": "random", "scheduler": "halving"}
    outcome = run_on_ray(space, study, **asked, max_concurrent=9, max_time=500.0)
    assert (outcome.ran, outcome.failures) == (2 + 4 + 1, 0), "one sampled trial goes on"
    assert max(under_way) <= sum(node.slots(Bundle(1, 0.0)) for node in cluster_nodes())
    # Two slots, one that waits for either, and one to spare: far from one a trial.
    assert 1 <= len(actor_pids() - before) <= 4
    printed = capfd.readouterr()
    assert printed.out == "", "Ray adds nothing to stdout"
    for noise in ("Configuration for experiment", "FileNotFoundError", "Traceback", "WARNING"):
        assert noise not in printed.err
    assert {(row["cpus"], row["data_source"]) for row in rows(study)} == {(1, "pairs.csv")}
    assert statuses(study) == 3 * ["finished"] + 3 * ["pruned"]
    assert temporary_files(study) == []
    best = configurations(Study.read(study), (DEFAULT,))["configuration"].iloc[0]
    (kept,) = checkpoints(study)
    assert {row["trial_id"]: row["configuration"] for row in rows(study)}[kept] == best
    run_here(space, here, **asked)
    assert (ends(study), numbers(study), points(study)) == (
        ends(here),
        numbers(here),
        points(here),
    )
    assert run_on_ray(space, here, **asked).ran == 0


def ends(study: Path) -> dict[str, tuple[object, ...]]:
    return {row["trial_id"]: (row["status"], row["steps"], row["stages"]) for row in rows(study)}


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
    run_on_ray(space, study, max_concurrent=1)
    values = objectives(study)
    (kept,) = checkpoints(study)
    (other,) = values.keys() - {kept}
    here, more = tmp_path / "here", {"evaluation.suites": ["transfer"]}
    shutil.copytree(study, here)
    for train, names, attempt in ((False, {kept}, 1), (True, {kept, other}, 2)):
        outcome = measure(study, more, train=train)
        assert (outcome.ran, outcome.failures) == (1, 0)
        assert {key[0] for key in numbers(study) if key[1] == "SST2"} == names
        attempts = {row["trial_id"]: row["attempt"] for row in rows(study)}
        assert attempts == {kept: 1, other: attempt}
    assert objectives(study) == pytest.approx(values, abs=1e-3)
    locally = SearchOptions(launcher="local", gpus_per_trial=0.0)
    assert measure(here, more, train=True, options=locally).ran == 2
    assert numbers(here) == numbers(study)


def test_trap_what_this_machine_lacks_is_refused_and_nothing_is_left_pending(
    tmp_path: Path,
) -> None:
    space = lambda_space(tmp_path / "space", 0.3)
    with pytest.raises(ResourceError, match="must fit this machine"):
        run_on_ray(space, tmp_path / "study", cpus_per_trial=3, gpus_per_trial=1.0)
    assert not (tmp_path / "study").exists()
