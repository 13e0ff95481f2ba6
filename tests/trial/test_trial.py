"""A trial from config to scores: what it writes, and when."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from trial_samples import LOADER, Kept, finish, measured

from tune_sentcl.config import TrialConfig
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import load_space
from tune_sentcl.trial import Account, InputLoader, run

GOLDEN = Path(__file__).parents[1] / "golden"


def smoke(**changes: Any) -> TrialConfig:
    return load_space("smoke", {"data.limit": 96, **changes}).configurations[0]


def test_dropped_rows_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("question,answer\n" + "a,b\n,b\na, \n" * 2, encoding="utf-8")
    columns = {"anchor": "question", "positive": "answer"}
    own = {"data.source": str(path), "data.columns": columns, "data.blanks": "drop"}
    config = smoke(**own, **{"method.name": "mnr", "evaluation.data": "toy"})
    *_, last = run(config, LOADER.load(config))
    assert "data.blanks = drop left out 4 rows with a blank sentence" in last.run_columns["notes"]


def test_everything_is_written_before_the_last_point(tmp_path: Path) -> None:
    config = smoke(**{"evaluation.every": 2})
    kept = Kept(tmp_path, config)
    trial = run(config, LOADER.load(config), output=kept.output())
    points = []
    for progress in trial:
        points.append(progress)
        if progress.final:
            break
        assert max(point.step for point in progress.curves) == progress.step
        assert not progress.scores and not kept.weights.exists()
    trial.close()  # a scheduler that stops a trial at its last point takes nothing from it
    assert {score.data for score in progress.scores} == {"toy"}
    values = [score.value for score in progress.scores]
    assert all(value is not None and math.isfinite(value) for value in values)
    assert [(p.step, p.final) for p in points] == [(2, False), (4, False), (6, True)]
    dev = [point.value for point in progress.curves if point.metric == DEFAULT.curve]
    assert dev == [point.dev for point in points]
    same = [score.value for score in measured(kept, config)[1].scores]
    assert same == pytest.approx(values)


def test_every_statistic_is_a_number_that_was_measured() -> None:
    points, _ = finish(smoke())
    facts = points[-1].run_columns
    assert facts["steps"] == 6 and facts["gpu_seconds"] == 0.0
    assert facts["wall_seconds"] >= facts["evaluation_seconds"] > 0
    parts = ("startup_seconds", "train_seconds", "evaluation_seconds")
    assert min(facts[part] for part in parts) > 0
    assert sum(facts[part] for part in parts) == pytest.approx(facts["wall_seconds"])
    assert facts["peak_memory_bytes"] > 50e6  # torch alone is larger
    assert facts["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("steps", "startup", "train"),
    [((), 5, 0), ((9,), 5, 9), ((9, 1, 2), 13, 4), ((1, 1, 9), 5, 11), ((1, 9), 5, 10)],
)
def test_what_a_worker_does_once_is_start_up(
    steps: tuple[float, ...], startup: float, train: float
) -> None:
    """Loading takes 5 s; of the first step counts what it takes beyond the second."""
    now = [0.0]
    account = Account(clock=lambda: now[0])
    now[0] += 5
    assert account.run_columns()["startup_seconds"] == 5
    account.begin_training()
    for number, seconds in enumerate(steps, 1):
        now[0] += seconds
        account.count(number)
        now[0] += 0.5
        account.evaluation_seconds += 0.5
    facts = account.run_columns()
    assert (facts["startup_seconds"], facts["train_seconds"]) == (startup, train)
    assert facts["wall_seconds"] == startup + train + 0.5 * len(steps)


@pytest.mark.parametrize(("name", "packed"), [("smoke", True), ("smoke_padded", False)])
def test_the_smoke_trial_follows_its_golden_curve(name: str, packed: bool) -> None:
    """`python -m tests.golden.smoke` writes them anew."""
    config = load_space("smoke", {"encoder.packed": packed}).configurations[0]
    (*_, last), _ = finish(config, loader=InputLoader(None))
    with (GOLDEN / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        golden = [(int(r["step"]), r["metric"], float(r["value"])) for r in csv.DictReader(file)]
    found = [(p.step, p.metric, p.value) for p in last.curves]
    assert [row[:2] for row in found] == [row[:2] for row in golden] and golden
    for (step, metric, value), (_, _, expected) in zip(found, golden, strict=True):
        # Scores are times 100, and one swapped pair of ranks moves them by more than a loss moves.
        tolerance = 0.1 if metric.startswith("STS") else 1e-3
        assert value == pytest.approx(expected, abs=tolerance), (step, metric)
