"""`--track`: what trackers are given of a search, and that they never cost it anything."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import fake_tracker
import pytest
from processes import descendants, wait_until
from search_samples import (
    lambda_space,
    rows,
    run_planted,
    statuses,
)
from staged import fate, run_staged
from stand_in import StandIn, Stopped
from tracked import READERS

from tune_sentcl.errors import ConfigError
from tune_sentcl.launch import search
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.watch.terminal import RichWatcher
from tune_sentcl.watch.tracking import processes
from tune_sentcl.watch.tracking.tracker import REMOTE, check_tracking

NAMES = tuple(REMOTE)
LAMBDAS = (0.25, 0.5, 0.75)
FAKE = "tensorboard"
"""The name of the fake client."""
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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracker's process has a client that writes down its calls."""
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, fake_tracker.__file__))
    monkeypatch.setattr(processes, "_INTERRUPTED_WAIT_S", 60.0)  # a crowded machine starts it late


def runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracker's process runs this code."""
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", code))


def calls(study: Path, trial_id: str = "") -> list[list[Any]]:
    """What the fake client was told of a trial, or of all, in order."""
    lines = (study / "calls.jsonl").read_text().splitlines()
    found: list[list[Any]] = list(map(json.loads, lines))
    return [call for call in found if not trial_id or call[1:2] == [trial_id]]


@pytest.mark.usefixtures("fake")
def test_a_tracker_is_told_of_every_trial_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that goes on after its pause begins anew, and has all its points again."""
    study = tmp_path / "study"
    stand_in = StandIn(study, fate)
    outcome = run_staged(tmp_path, stand_in, monkeypatch, seeds=(0, 1), track=(FAKE,))
    assert (outcome.ran, outcome.failures) == (10, 2)
    assert calls(study)[-1] == ["close"]
    told = [calls(study, row["trial_id"]) for row in rows(study)]
    assert sorted([call[0] for call in of].count("begin") for of in told) == [*[1] * 8, 2]
    for row, of in zip(rows(study), told, strict=True):
        last = max(place for place, call in enumerate(of) if call[0] == "begin")
        begun, *points, ended = of[last:]
        assert begun[:3] == ["begin", row["trial_id"], row["configuration"]]
        assert begun[3]["method.lambda"] == row["method.lambda"]
        assert {call[0] for call in points} == {"log"}
        spearman = [(step, values["STS-B.dev.spearman"]) for _, _, step, values in points]
        finished = row["status"] == "finished"
        assert spearman == [(1, 10.0), (2, 20.0)][: 2 if finished else 1]
        name, _, step, values, facts = ended
        assert (name, step, facts["status"]) == ("end", row["steps"], row["status"])
        assert ("score/STS12.test.spearman.all.cosine" in values) == finished
        assert values.get("objective") == pytest.approx(row["objective"])
        assert values["cost/wall_seconds"] == row["wall_seconds"]
        if row["status"] == "failed":
            assert (facts["error_type"], facts["error_text"]) == ("ValueError", "planted")


@pytest.mark.usefixtures("fake")
def test_a_point_is_logged_while_its_trial_runs(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    seen, looks = [], itertools.count()

    class Looking(StandIn):
        def _die(self) -> None:  # before each of its two points
            if next(looks):
                file = study / "calls.jsonl"
                wait_until(lambda: file.exists() and '["log"' in file.read_text(), "a point")
                seen.append('["end"' in file.read_text())

    run_planted(space, study, Looking(study), track=(FAKE,))
    assert seen and not any(seen)


@pytest.mark.usefixtures("fake")
def test_an_interrupted_search_closes_its_trackers(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    with pytest.raises(Stopped):
        run_planted(space, study, StandIn(study, points=2, at_once=1), track=(FAKE,))
    names = [call[0] for call in calls(study)]
    assert names.count("begin") > names.count("end")
    assert names[-1] == "close"


@pytest.mark.usefixtures("fake")
def test_trap_a_worker_that_is_lost_makes_no_point_twice(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose_once", saves=True)
    outcome, actions = run_planted(space, study, stand_in, track=(FAKE,))
    assert (outcome.failures, len(actions)) == (0, 2)
    assert [call[0] for call in calls(study)] == ["begin", "log", "log", "end", "close"]


@pytest.mark.usefixtures("fake")
def test_trap_a_client_that_fails_is_said_once_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    run_planted(lambda_space(tmp_path / "space", 0.9), study)
    (study / "refuse").touch()
    capsys.readouterr()
    outcome, actions = run_planted(space, study, track=(FAKE,))
    assert (outcome.ran, outcome.failures, len(actions)) == (3, 0, 3)
    err = capsys.readouterr().err
    said = "tensorboard failed and tracks no further trials: ValueError: the store is full"
    assert err.count(said) == err.count("tensorboard") == 1, err
    assert statuses(study) == ["finished"] * 4


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        ("import time; time.sleep(600)", "it had not finished 1 s after the search"),
    ],
)
def test_trap_a_process_that_dies_or_hangs_costs_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    said: str,
) -> None:
    monkeypatch.setattr(processes, "_WAIT_S", 1.0 if "sleep" in code else 60.0)
    runs(code, monkeypatch)
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    outcome, _ = run_planted(space, study, track=(FAKE,))
    assert (outcome.ran, outcome.failures) == (3, 0)
    err = capsys.readouterr().err
    assert err.count(said) == err.count("tensorboard") == 1, err
    assert not trackers(code), "nothing is left of it"


def trackers(code: str) -> list[int]:
    return [pid for pid, line in descendants(os.getpid()).items() if code in line]


def test_trap_trackers_that_hang_share_one_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_INTERRUPTED_WAIT_S", 2.0)
    code = "import time; time.sleep(600)"
    runs(code, monkeypatch)
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    following = processes.tracking(NAMES, str(study), "tiny", RichWatcher())
    began = 0.0
    opened = StudyDriver.open(study, space=space, command=[])
    with pytest.raises(KeyboardInterrupt), opened, following:
        wait_until(lambda: len(trackers(code)) == len(NAMES), "the trackers' processes")
        began = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - began < len(NAMES) * 2.0, "each waited for on its own"
    assert capsys.readouterr().err.count("it had not finished 2 s after the search") == 4
    assert not trackers(code), "nothing is left of them"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """A study, and what trackers are told of the search that was interrupted and of the next."""
    folder = tmp_path_factory.mktemp("tracked")
    study = folder / "study"
    told: list[list[str]] = []
    tell = processes._TrackerProcess.send

    def record(self: processes._TrackerProcess, line: str | None) -> None:
        told[-1] += [line] if line else []
        tell(self, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            processes, "_COMMAND", (sys.executable, "-c", "import sys; sys.stdin.read()")
        )
        patch.setattr(processes._TrackerProcess, "send", record)
        for launcher in (StandIn(study, points=1, at_once=1), StandIn(study, fate)):
            told.append([])
            with suppress(Stopped):
                run_staged(folder, launcher, patch, track=(FAKE,))
    return study, told


FOLLOW = """
import sys
from tune_sentcl.watch.tracking.__main__ import follow
for name in sys.argv[1:]:
    follow(open(name))
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_client_holds_every_trial_once(
    tmp_path: Path,
    name: str,
    events: tuple[Path, list[list[str]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first search was interrupted, and the second takes the place of what it left."""
    monkeypatch.chdir(tmp_path)
    study = Path("studies/lambda")  # as on the page whose recipe reads them
    shutil.copytree(events[0], study)
    head = {"tracker": name, "space": "scl/lambda", "study": str(study.absolute())}
    for number, lines in enumerate(events[1]):
        Path(f"{number}.jsonl").write_text("\n".join([json.dumps(head), *lines]) + "\n")
    command = [sys.executable, "-c", FOLLOW, "0.jsonl", "1.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, stored = READERS[name](study), {row["trial_id"]: row for row in rows(study)}
    assert found.keys() == stored.keys()
    assert {row["status"] for row in stored.values()} == {"finished", "pruned", "failed"}
    for trial_id, run in found.items():
        row = stored[trial_id]
        assert run.status == STATUSES[name][row["status"]]
        assert run.group == row["configuration"]
        assert float(run.params["method.lambda"]) == row["method.lambda"]
        assert run.last["status"] == row["status"]
        finished = row["status"] == "finished"
        points = [(1, 10.0), (2, 20.0)][: 2 if finished else 1]
        assert run.curves["STS-B.dev.spearman"] == points
        assert ("score/STS12.test.spearman.all.cosine" in run.last) == finished
        if row["objective"] is not None:
            assert run.last["objective"] == pytest.approx(row["objective"])
        if row["status"] == "failed":
            assert (run.last["error_type"], run.last["error_text"]) == ("ValueError", "planted")
    if name == "mlflow":
        told = {(i, str(r["method.lambda"])) for i, r in stored.items() if r["objective"]}
        assert {line[:2] for line in printed_by_recipe(capsys)} >= told


def printed_by_recipe(capsys: pytest.CaptureFixture[str]) -> set[tuple[str, ...]]:
    """The words of each line that the recipe of docs/watching.md prints."""
    page = Path(__file__).parents[2] / "docs" / "watching.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy warns of what MLflow's store asks for
        exec(compile(code, str(page), "exec"), {})
    return {tuple(line.split()) for line in capsys.readouterr().out.splitlines()}


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
    for on_cluster in (False, True):
        with pytest.raises(ConfigError, match=r"there: s3://b/x\. Name a folder"):
            check_tracking(("tensorboard",), "s3://b/x", on_cluster=on_cluster)
        for study in ("/disk/study", "file:///disk/study"):
            check_tracking(NAMES, study, on_cluster=on_cluster)
    with pytest.raises(ConfigError, match="Set MLFLOW_TRACKING_URI, or name a folder"):
        check_tracking(("mlflow",), "s3://b/x")
    check_tracking(("mlflow", "wandb"), "s3://b/x", on_cluster=True)  # the cluster's variables
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ConfigError, match="Set WANDB_MODE=online"):
        check_tracking(("wandb",), "s3://b/x")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    check_tracking(("mlflow", "wandb"), "s3://b/x")
