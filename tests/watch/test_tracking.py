"""`--track`: what trackers are given of a search, and that they never cost it anything."""

import itertools
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from processes import wait_until
from search_samples import lambda_space, rows, run_planted, statuses
from staged import fate, run_staged
from stand_in import StandIn, Stopped
from tracked import READERS, Run

from tune_sentcl.errors import ConfigError
from tune_sentcl.launch import search
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.watch import tracking
from tune_sentcl.watch.trackers import TRACKERS, Tracker, check_tracking

NAMES = tuple(TRACKERS)
LAMBDAS = (0.25, 0.5, 0.75)
FAKE = "tensorboard"
"""The name of the fake client."""
STATUSES = {
    "mlflow": {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED"},
    "wandb": {"finished": "0", "pruned": "0", "failed": "1"},
}


class Fake(Tracker):
    """Writes down its calls; it may fail, or hang until `released`."""

    calls: ClassVar[list[tuple[str, Any]]] = []
    refuses: ClassVar[BaseException | None] = None
    released = threading.Event()

    def __init__(self, space: str, study: str, folder: Path) -> None:
        del space, study, folder
        self.released.wait()
        if self.refuses:
            raise self.refuses

    def begin(self, *args: Any) -> None:
        self.calls.append(("begin", args))

    def point(self, *args: Any) -> None:
        self.calls.append(("point", args))

    def end(self, *args: Any) -> None:
        self.calls.append(("end", args))


@pytest.fixture(autouse=True)
def nothing_but_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable leads a client elsewhere, and what would go through a proxy comes nowhere."""
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "WANDB_")):
            monkeypatch.delenv(name)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Fake]]:
    """A tracker is the fake one."""
    module = f"tune_sentcl.watch.{FAKE}_tracker"
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(Client=Fake))
    for name in ("_WAIT_S", "_INTERRUPTED_WAIT_S"):  # no test waits so long for a busy machine
        monkeypatch.setattr(tracking, name, 300.0)
    monkeypatch.setattr(Fake, "calls", [])
    monkeypatch.setattr(Fake, "refuses", None)
    Fake.released.set()
    yield Fake
    Fake.released.set()


def kinds(fake: type[Fake]) -> list[str]:
    return [kind for kind, _ in fake.calls]


def test_a_trial_that_goes_on_after_its_pause_begins_anew_and_has_all_its_points_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: type[Fake]
) -> None:
    study = tmp_path / "study"
    stand_in = StandIn(study, fate)
    outcome = run_staged(tmp_path, stand_in, monkeypatch, seeds=(0, 1), track=(FAKE,))
    assert (outcome.ran, outcome.failures) == (10, 2)
    begins = []
    for row in rows(study):
        calls = [call for call in fake.calls if call[1][0] == row["trial_id"]]
        starts = [place for place, (kind, _) in enumerate(calls) if kind == "begin"]
        begins.append(len(starts))
        *points, (kind, (_, step, values, _)) = calls[starts[-1] + 1 :]
        steps = [point[1] for _, point in points]
        assert steps == ([1, 2] if row["status"] == "finished" else [1])
        assert kind == "end" and step == row["steps"]
        assert values["cost/wall_seconds"] == row["wall_seconds"]
    assert sorted(begins) == [*[1] * 8, 2]


def test_a_point_is_logged_while_its_trial_runs(tmp_path: Path, fake: type[Fake]) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    seen, looks = [], itertools.count()

    class Looking(StandIn):
        def _die(self) -> None:  # before each of its two points
            if next(looks):
                wait_until(lambda: "point" in kinds(fake), "a point")
                seen.append("end" in kinds(fake))

    run_planted(space, study, Looking(study), track=(FAKE,))
    assert seen and not any(seen)


def test_an_interrupted_search_ends_the_runs_of_its_trackers(
    tmp_path: Path, fake: type[Fake]
) -> None:
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    with pytest.raises(Stopped):
        run_planted(space, study, StandIn(study, points=2, at_once=1), track=(FAKE,))
    assert kinds(fake).count("begin") == kinds(fake).count("end")
    kind, (_, _, values, texts) = fake.calls[-1]
    assert (kind, values, texts) == ("end", {}, {"status": "interrupted"})


def test_trap_a_worker_that_is_lost_makes_no_point_twice(tmp_path: Path, fake: type[Fake]) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    stand_in = StandIn(study, lambda config: "lose_once", saves=True)
    outcome, actions = run_planted(space, study, stand_in, track=(FAKE,))
    assert (outcome.failures, len(actions)) == (0, 2)
    assert kinds(fake) == ["begin", "point", "point", "end"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("the store is full\nand more"), "failed (ValueError: the store is full)"),
        (SystemExit(1), "failed (SystemExit: 1)"),
        ("hangs", "had not finished 1 s after the search"),
    ],
)
def test_trap_a_client_that_fails_or_hangs_is_told_once_and_costs_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fake: type[Fake],
    fault: BaseException | str,
    said: str,
) -> None:
    if isinstance(fault, str):
        monkeypatch.setattr(tracking, "_WAIT_S", 1.0)
        fake.released.clear()
    else:
        fake.refuses = fault
    space, study = lambda_space(tmp_path / "space", *LAMBDAS), tmp_path / "study"
    outcome, actions = run_planted(space, study, track=(FAKE,))
    assert (outcome.ran, outcome.failures, len(actions)) == (3, 0, 3)
    err = capsys.readouterr().err
    assert err.count(f"tensorboard {said}; no further trials are tracked") == 1, err
    assert err.count("tensorboard") == 1, err
    assert statuses(study) == ["finished"] * 3


TRACK = """
import sys
sys.path[:0] = {paths}
from contextlib import suppress
from pathlib import Path
import pytest
from staged import fate, run_staged
from stand_in import StandIn, Stopped
from tune_sentcl.watch import tracking
tracking._WAIT_S = tracking._INTERRUPTED_WAIT_S = 120.0
with pytest.MonkeyPatch.context() as patch:
    study = Path("studies/lambda")
    for launcher in (StandIn(study, points=1, at_once=1), StandIn(study, fate)):
        with suppress(Stopped):
            run_staged(Path(), launcher, patch, track=tuple(sys.argv[1:]))
print("said on stdout")
"""


@pytest.mark.long
def test_the_clients_hold_every_trial_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first search was interrupted, and the second takes the place of what it left."""
    monkeypatch.chdir(tmp_path)
    study = Path("studies/lambda")  # as on the page whose recipe reads them
    command = [sys.executable, "-c", TRACK.format(paths=sys.path), *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "said on stdout\n"), done.stderr
    stored = {row["trial_id"]: row for row in rows(study)}
    assert {row["status"] for row in stored.values()} == {"finished", "pruned", "failed"}
    for name in NAMES:
        assert name not in done.stderr, done.stderr
        runs = READERS[name](study)
        assert runs.keys() == stored.keys(), name
        for trial_id, run in runs.items():
            assert_run(name, run, stored[trial_id])
    told = {(i, str(r["method.lambda"])) for i, r in stored.items() if r["objective"]}
    assert {line[:2] for line in printed_by_recipe(capsys)} >= told


def assert_run(name: str, run: Run, row: dict[str, Any]) -> None:
    """A client's run is that of a trial's row."""
    status, finished = row["status"], row["status"] == "finished"
    assert run.status == STATUSES.get(name, {}).get(status, status)
    assert run.group == row["configuration"]
    assert float(run.params["method.lambda"]) == row["method.lambda"]
    assert run.curves["STS-B.dev.spearman"] == [(1, 10.0), (2, 20.0)][: 2 if finished else 1]
    assert ("score/STS12.test.spearman.all.cosine" in run.last) == finished
    assert run.last.get("objective") == pytest.approx(row["objective"])
    error = ("ValueError", "planted") if status == "failed" else (None, None)
    texts = [run.last.get(key) for key in ("status", "error_type", "error_text")]
    assert texts == [status, *error]


def printed_by_recipe(capsys: pytest.CaptureFixture[str]) -> set[tuple[str, ...]]:
    """The words of each line that the recipe of docs/results.md prints."""
    page = Path(__file__).parents[2] / "docs" / "results.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    (code,) = (block for block in blocks if "MlflowClient" in block)
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
    assert list(map(str, refused.value.faults)) == [
        "SearchOptions.track: tensorbord: must be one of mlflow, wandb, tensorboard. Choose one "
        "of them, or load its plugin by --plugin.",
        "SearchOptions.track: wandb: the tracker's client is not installed. "
        'Run: pip install "tune-sentcl[wandb]".',
    ]
    assert not (tmp_path / "study").exists()


MLFLOW, BUCKET = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}, "s3://b/x"


@pytest.mark.parametrize(
    ("names", "study", "on_cluster", "variables", "sentence"),
    [
        (NAMES, "/disk/study", False, {}, ""),
        (NAMES, "file:///disk/study", True, {}, ""),
        (("tensorboard",), BUCKET, False, {}, r"not s3://b/x\. Use a study in a folder"),
        (("mlflow",), BUCKET, False, {}, "Set MLFLOW_TRACKING_URI, or use a study in a folder"),
        (("mlflow", "wandb"), BUCKET, True, {}, ""),  # the cluster's variables
        (("wandb",), BUCKET, False, {"WANDB_MODE": "offline"}, "Set WANDB_MODE=online"),
        (("mlflow", "wandb"), BUCKET, False, {**MLFLOW, "WANDB_MODE": "online"}, ""),
        (("mlflow",), "/disk/what?", False, {}, "Rename the folder, or set MLFLOW_TRACKING_URI"),
        (("mlflow",), "/disk/what?", False, MLFLOW, ""),
    ],
)
def test_files_need_a_folder_and_servers_need_none(
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    study: str,
    on_cluster: bool,
    variables: dict[str, str],
    sentence: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=sentence) if sentence else nullcontext():
        check_tracking(names, study, on_cluster=on_cluster)
