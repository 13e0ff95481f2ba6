"""A trial from config to scores: repeatable, selected on dev, written before its end."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.space import load_space
from tune_sentcl.store import CurvePoint, Score
from tune_sentcl.trial import Ended, InputLoader, Progress, run

GOLDEN = Path(__file__).parents[1] / "golden" / "smoke.csv"


class Memory:
    """Keeps what a trial writes, in the order in which it writes it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.curves: list[CurvePoint] = []
        self.scores: list[Score] = []

    def write_curves(self, trial_id: str, points: Any) -> None:
        self.log.append("curves")
        self.curves = list(points)

    def write_scores(self, trial_id: str, scores: Any) -> None:
        self.log.append("scores")
        self.scores = list(scores)

    def add_scores(self, trial_id: str, scores: Any) -> None:
        raise AssertionError("a trial that is trained writes all of its scores")

    def write_checkpoint(self, trial_id: str, encoder: Any, facts: Any) -> None:
        self.log.append("checkpoint")


def smoke(**changes: Any) -> TrialConfig:
    return load_space("smoke", {"data.limit": 96, **changes}).configurations[0]


def finish(config: TrialConfig, output: Memory) -> tuple[list[Progress], Ended]:
    points: list[Progress] = []
    trial = run(config, InputLoader(None).load(config), output=output)
    while True:
        try:
            points.append(next(trial))
        except StopIteration as stop:
            return points, stop.value


def test_a_trial_repeats_to_the_bit() -> None:
    outputs = [Memory(), Memory()]
    ends = [finish(smoke(), output)[1] for output in outputs]
    assert outputs[0].curves == outputs[1].curves and outputs[0].curves
    assert ends[0].scores == ends[1].scores
    first, second = (end.encoder.state_dict() for end in ends)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_another_seed_gives_another_trial() -> None:
    ends = [finish(smoke().model_copy(update={"seed": seed}), Memory())[1] for seed in (0, 1)]
    assert ends[0].scores != ends[1].scores


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    finish(smoke(), Memory())
    assert torch.equal(before, torch.get_rng_state())


def test_everything_is_written_before_the_last_point() -> None:
    output = Memory()
    config = smoke()
    trial = run(config, InputLoader(None).load(config), output=output)
    for progress in trial:
        if progress.final:
            break
        assert output.log[-1] == "curves" and "scores" not in output.log
    trial.close()  # a scheduler that stops a trial at its last point takes nothing from it
    assert output.log[-3:] == ["checkpoint", "curves", "scores"]
    assert {score.data for score in output.scores} == {"toy"}
    assert all(math.isfinite(score.value) for score in output.scores)


def test_points_come_every_so_many_steps_and_at_the_end() -> None:
    output = Memory()
    points, _ = finish(smoke(**{"evaluation.every": 2}), output)
    assert [(p.step, p.final) for p in points] == [(2, False), (4, False), (6, True)]
    dev = [p.value for p in output.curves if p.metric == "STS-B.dev.spearman"]
    assert dev == [p.dev for p in points]


def test_selecting_the_best_keeps_the_best_weights() -> None:
    # A rate this high ruins the encoder in the end, so that the best point is not the last.
    changes = {"evaluation.every": 1, "optimizer.lr": 0.05}
    last, _ = finish(smoke(**changes), Memory())
    best, _ = finish(smoke(**changes, **{"evaluation.select": "best"}), Memory())
    assert best[-1].dev == max(p.dev for p in last) > last[-1].dev


def test_every_statistic_is_a_number_that_was_measured() -> None:
    points, _ = finish(smoke(), Memory())
    facts = points[-1].facts
    assert facts["steps"] == 6 and facts["gpu_seconds"] == 0.0
    assert facts["wall_seconds"] >= facts["evaluation_seconds"] > 0
    assert facts["peak_memory_bytes"] > 50e6  # torch alone is larger
    assert facts["versions"]["torch"] == torch.__version__


def test_the_smoke_trial_follows_its_golden_curve() -> None:
    """`python -m tests.golden.smoke` writes it anew."""
    output = Memory()
    config = load_space("smoke").configurations[0]
    finish(config, output)
    with GOLDEN.open(newline="", encoding="utf-8") as file:
        golden = [(int(r["step"]), r["metric"], float(r["value"])) for r in csv.DictReader(file)]
    found = [(p.step, p.metric, p.value) for p in output.curves]
    assert [row[:2] for row in found] == [row[:2] for row in golden] and golden
    for (step, metric, value), (_, _, expected) in zip(found, golden, strict=True):
        # Scores are times 100, and one swapped pair of ranks moves them by more than a loss moves.
        tolerance = 0.1 if metric.startswith("STS") else 1e-3
        assert value == pytest.approx(expected, abs=tolerance), (step, metric)
