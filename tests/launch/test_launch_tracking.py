"""`--track`: what the four trackers keep of a search, read by their own libraries."""

import os
import re
import signal
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tracked
from launch_samples import NoInputs, lambda_space, rows, run_planted, statuses
from processes import descendants, wait_until
from stand_in import Fate, StandIn, Stopped
from tracked import READERS

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import ConfigError
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import search
from tune_sentcl.launch.tracking import tracking
from tune_sentcl.launch.tracking.named import NAMES, check_tracking, check_tracking_there
from tune_sentcl.launch.watch import RichWatcher
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.rows import TrialRow

LAMBDAS = (0.25, 0.5, 0.75)
FATES: dict[float, Fate] = {0.25: "finish", 0.5: "prune", 0.75: "fail"}
FAST = "tensorboard"
"""The tracker that is the first to stand, for what is the same of all."""
STATUSES = {
    "mlflow": {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED"},
    "tensorboard": {"finished": "finished", "pruned": "unknown", "failed": "failed"},
    "trackio": {"finished": "finished", "pruned": "pruned", "failed": "failed"},
    "wandb": {"finished": "0", "pruned": "0", "failed": "1"},
}


@pytest.fixture(autouse=True)
def nothing_but_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable leads a client elsewhere, and what would go through a proxy comes nowhere."""
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "WANDB_", "TRACKIO_", "HF_")):
            monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def fate(config: TrialConfig) -> Fate:
    return FATES[config.dotted()["method.lambda"]]


def number(config: Any) -> float:
    """MLflow keeps knobs as text."""
    return float(config["method.lambda"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_holds_every_trial_once_whatever_became_of_it(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    outcome, _ = run_planted(space, study, StandIn(study, fate), seeds=(0, 1), track=(name,))
    assert (outcome.ran, outcome.failures) == (6, 2)
    found, stored = READERS[name](study), {row["trial_id"]: row for row in rows(study)}
    assert found.keys() == stored.keys()
    for trial_id, run in found.items():
        row = stored[trial_id]
        assert run.status == STATUSES[name][row["status"]]
        assert run.group == row["configuration"]
        assert number(run.params) == row["method.lambda"]
        assert run.last["status"] == row["status"]
        points = [(1, 10.0)] if row["status"] != "finished" else [(1, 10.0), (2, 20.0)]
        assert run.curves["STS-B.dev.spearman"] == points
        assert ("score/STS12.test.spearman.all.cosine" in run.last) == (len(points) == 2)
        if row["objective"] is not None:
            assert run.last["objective"] == pytest.approx(row["objective"])
        if row["status"] == "failed":
            assert (run.last["error_type"], run.last["error_text"]) == ("ValueError", "planted")
    assert "tracks nothing" not in capsys.readouterr().err
    # A repeated search runs what failed, and it is there once.
    run_planted(space, study, StandIn(study), seeds=(0, 1), track=(name,))
    again = READERS[name](study)
    assert again.keys() == found.keys()
    ended = {trial_id: STATUSES[name][row["status"]] for trial_id, row in _by_id(study).items()}
    assert {trial_id: run.status for trial_id, run in again.items()} == ended
    assert "tracks nothing" not in capsys.readouterr().err


def _by_id(study: Path) -> dict[str, dict[str, Any]]:
    return {row["trial_id"]: row for row in rows(study)}


@pytest.mark.slow
def test_a_trial_is_there_while_it_runs(tmp_path: Path) -> None:
    """Its points are written as they come, not at its end."""
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"

    class Looking(StandIn):
        def _die(self) -> None:  # behind each point
            if self.handed and any((study / "curves").iterdir()):
                events = study / "tensorboard"
                seen.add(wait_until(lambda: any(events.glob("*/*")), "events of the trial"))

    seen: set[bool] = set()
    run_planted(space, study, Looking(study), track=(FAST,))
    assert seen == {True}


@pytest.mark.slow
def test_a_driver_that_dies_leaves_runs_that_the_next_one_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_HASTE_S", 60.0)  # a crowded machine starts it late
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    with pytest.raises(Stopped):
        run_planted(space, study, StandIn(study, points=2, at_once=1), track=(FAST,))
    assert "unknown" in {run.status for run in tracked.tensorboard(study).values()}
    run_planted(space, study, track=(FAST,))
    found = tracked.tensorboard(study)
    assert len(found) == 3 and {run.status for run in found.values()} == {"finished"}


@pytest.mark.slow
def test_trap_a_worker_that_is_lost_makes_no_point_twice(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose_once", saves=True)
    outcome, actions = run_planted(space, study, stand_in, track=(FAST,))
    assert (outcome.failures, len(actions)) == (0, 2)
    (run,) = tracked.tensorboard(study).values()
    assert run.curves["STS-B.dev.spearman"] == [(1, 10.0), (2, 20.0)]


@pytest.mark.slow
def test_trap_a_tracker_that_fails_is_said_once_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    run_planted(lambda_space(tmp_path / "space", 0.9), study)
    (study / "tensorboard").write_text("in the way")
    capsys.readouterr()
    outcome, actions = run_planted(space, study, track=(FAST,))
    assert (outcome.ran, outcome.failures, len(actions)) == (3, 0, 3)
    err = capsys.readouterr().err
    assert err.count("tensorboard tracks nothing from here on: NotADirectoryError") == 1, err
    assert statuses(study) == ["finished"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_trap_a_tracker_that_dies_or_hangs_costs_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(tracking, "_PATIENCE_S", 1.0)
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    hit: list[int] = []

    class Hitting(StandIn):
        def _die(self) -> None:
            if not hit:
                hit.append(wait_until(_tracker, "the tracker's process"))
                os.kill(hit[0], number)

    outcome, _ = run_planted(space, study, Hitting(study), track=(FAST,))
    assert (outcome.ran, outcome.failures, len(hit)) == (3, 0, 1)
    err = capsys.readouterr().err
    killed = "tensorboard tracks nothing from here on: its process ended by SIGKILL"
    hung = "tensorboard was not done with all of the search in 1 s more"
    assert err.count(killed if number == signal.SIGKILL else hung) == 1, err
    assert _tracker() is None, "nothing is left of it"


def _tracker() -> int | None:
    return next(iter(_trackers()), None)


def _trackers() -> list[int]:
    mine = descendants(os.getpid()).items()
    return [pid for pid, line in mine if "launch.tracking" in line]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_trap_no_secret_is_tracked(tmp_path: Path, name: str) -> None:
    secret = "hf_aaaaBBBB1111ccccDDDD2222"
    config = parse_dotted(
        {"method.name": "scl", "encoder.checkpoint": f"https://me:{secret}@host/model"}, "a test"
    )
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    prints = NoInputs().load(space.configurations[0]).fingerprints
    assignment = Assignment("abc123", "def456", config, "grid", prints)
    row = TrialRow(
        config,
        trial_id="abc123",
        configuration="def456",
        space="tiny",
        origin="grid",
        status="failed",
        error_type="OSError",
        error_text=f"cannot read https://me:{secret}@host with token={secret}",
    )
    following = tracking.tracked((name,), str(study), "tiny", RichWatcher())
    with StudyDriver.open(study, space=space, command=[]), following as watcher:
        watcher.started(assignment)
        watcher.ended(row, 1)
    (run,) = READERS[name](study).values()
    assert "HIDDEN" in run.params["encoder.checkpoint"]
    assert "HIDDEN" in run.last["error_text"]
    for path in study.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_trap_trackers_that_hang_share_one_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_HASTE_S", 2.0)
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    following = tracking.tracked(NAMES, str(study), "tiny", RichWatcher())
    began = 0.0
    opened = StudyDriver.open(study, space=space, command=[])
    with pytest.raises(KeyboardInterrupt), opened, following:
        wait_until(lambda: len(_trackers()) == len(NAMES), "the trackers' processes")
        for pid in _trackers():
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - began < len(NAMES) * 2.0, "each waited for on its own"
    assert capsys.readouterr().err.count("was not done with all of the search in 2 s") == 4
    assert not _trackers(), "nothing is left of them"


def test_what_cannot_be_had_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    options = SearchOptions(launcher="local", gpus_per_trial=0.0, track=("tensorbord", "wandb"))
    with pytest.raises(ConfigError) as refused:
        search("smoke", tmp_path / "study", options=options)
    unknown, missing = map(str, refused.value.faults)
    assert unknown == (
        "--track: tensorbord: must be one of mlflow, wandb, tensorboard, trackio. Choose one."
    )
    assert missing == (
        '--track: wandb: its client is not installed. Run: pip install "tune-sentcl[wandb]".'
    )
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("name", ["what?", "50%25 #1/study"])
def test_mlflow_is_refused_where_a_path_is_no_url(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / name
    for path in (str(study), study.as_uri()):
        with pytest.raises(ConfigError, match="Rename it, or set MLFLOW_TRACKING_URI"):
            check_tracking(("mlflow",), path)
        check_tracking(("tensorboard", "trackio"), path)
    study.mkdir(parents=True)
    monkeypatch.chdir(study)
    with pytest.raises(ConfigError, match="cannot write below a folder"):
        check_tracking(("mlflow",), "inside")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    check_tracking(("mlflow",), str(study))


def test_files_need_a_folder_and_servers_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for check in (check_tracking, check_tracking_there):
        with pytest.raises(ConfigError, match=r"s3://b/x is none\. Name a folder"):
            check(("tensorboard",), "s3://b/x")
        check(NAMES, "/disk/study")
        check(NAMES, "file:///disk/study")
    with pytest.raises(ConfigError, match="Set MLFLOW_TRACKING_URI, or name a folder"):
        check_tracking(("mlflow",), "s3://b/x")
    check_tracking_there(("mlflow", "wandb"), "s3://b/x")  # whose variables are the cluster's
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ConfigError, match="Set WANDB_MODE=online"):
        check_tracking(("wandb",), "s3://b/x")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    check_tracking(("mlflow", "wandb"), "s3://b/x")


@pytest.mark.slow
def test_mlflow_writes_where_its_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/elsewhere/mlflow.db")
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study, track=("mlflow",))
    assert [run.status for run in tracked.mlflow(tmp_path / "elsewhere").values()] == ["FINISHED"]
    assert not list(study.glob("mlflow*"))


@pytest.mark.slow
def test_the_recipe_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space = replace(lambda_space(tmp_path / "space", 0.3, 0.7), name="scl/lambda")
    run_planted(space, Path("studies/lambda"), track=("mlflow",))
    page = Path(__file__).parents[2] / "docs" / "watching.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns of what MLflow's store asks for
        exec(compile(code, str(page), "exec"), {})
    printed = {tuple(line.split()[:2]) for line in capsys.readouterr().out.splitlines()}
    stored = rows(Path("studies/lambda"))
    assert printed == {(row["trial_id"], str(row["method.lambda"])) for row in stored}
