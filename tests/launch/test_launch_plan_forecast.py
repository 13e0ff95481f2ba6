"""A search says what was planned and what it took, and keeps both."""

import re
from pathlib import Path
from typing import Any

import pytest
from launch_samples import lambda_space, run_planted, statuses
from test_launch_plan_trials import recalled

from tune_sentcl.launch.forecast import against_plan, foresee, runs_here
from tune_sentcl.launch.local import run_locally
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import prepare
from tune_sentcl.launch.search import SearchOutcome, run_prepared
from tune_sentcl.launch.worker import worker_settings
from tune_sentcl.space import Space
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.store.study import Study

pytestmark = pytest.mark.slow  # each estimate takes seconds

LINE = r"planned (at most )?\d+:\d\d for (\d+) trials? \((.*)\), took \d+:\d\d"


def said(capsys: pytest.CaptureFixture[str]) -> re.Match[str] | None:
    return re.search(LINE, capsys.readouterr().err)


def run_compared(space: Space, study: Path, seeds: tuple[int, ...] = (0,)) -> SearchOutcome:
    """A search for Ray's launcher, which is estimated, run by the local one, which is quicker."""
    options = SearchOptions(gpus_per_trial=0.0, address="local")
    settings = worker_settings(str(study), options, 0.0)
    prepared = prepare(space, None, seeds, options)
    launch = against_plan(lambda s: run_locally(s, settings), prepared, str(study))
    return run_prepared(prepared, str(study), launch)


def record(study: Path) -> PlanRecord | None:
    return Study.read(study).manifest.plan


def test_a_search_compares_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space, study = lambda_space(tmp_path, 0.3, 0.7), tmp_path / "study"
    run_compared(space, study)
    line = said(capsys)
    assert line is not None and line.groups() == (None, "2", "1 kind of trial timed here")
    first = record(study)
    assert first is not None and first.trials == 2
    assert first.planned_seconds > 0 and first.actual_seconds > 0
    run_compared(space, study)
    assert said(capsys) is None and record(study) == first, "nothing was to be done"
    run_compared(space, study, (0, 1, 2))
    line = said(capsys)
    assert line is not None and line.group(2) == "4"
    assert line.group(3) == "2 finished trials of 1 kind of trial"
    second = record(study)
    assert second is not None and second.trials == 4


def test_nothing_is_said_where_nothing_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    run_compared(space, study)
    kept = record(study)
    capsys.readouterr()
    more = space.with_overrides({"evaluation.protocols": ["cosine", "relatedness"]})
    assert run_compared(more, study).ran == 1
    assert said(capsys) is None and record(study) == kept


def test_nothing_is_foreseen_of_trials_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert runs_here(SearchOptions()) and runs_here(SearchOptions(address="local"))
    assert not runs_here(SearchOptions(address="10.0.0.1:6379"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert not runs_here(SearchOptions()) and not runs_here(SearchOptions(launcher="local"))
    assert runs_here(SearchOptions(address="local"))
    space = lambda_space(tmp_path, 0.3)
    asked: dict[str, Any] = {"launcher": "ray"}
    assert foresee(recalled(space, None, **asked), str(tmp_path / "none")) is None
    run_planted(space, tmp_path / "study")
    assert said(capsys) is None and record(tmp_path / "study") is None


def test_what_cannot_be_told_ends_no_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    # A doubled sentence of this length does not fit the encoder, which shows when it is assembled.
    changes = {"method.name": "conisi", "encoder.max_length": 512, "encoder.train_length": 512}
    run_compared(space.with_overrides(changes), study)
    told = capsys.readouterr().err
    assert "how long this will take cannot be told" in told and "train_length" in told
    assert statuses(study) == ["failed"]
    assert record(study) is None
