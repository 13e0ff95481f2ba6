"""A trial from config to scores: what it writes, and when."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from toy_generator.domain import write_domain
from trial_samples import LOADER, Kept, drained, finish, measured

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import load_space
from tune_sentcl.trial import Account, InputLoader, run
from tune_sentcl.trial.inputs import measures_of

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
    assert torch.__version__.startswith(facts["versions"]["torch"])


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


def test_scores_at_a_width_are_those_of_the_first_numbers(tmp_path: Path) -> None:
    write_domain(tmp_path, pairs=24, documents=30, queries=10)
    config = parse_dotted(
        {
            "method.name": "mnr",
            "method.dims": [32, 8],
            "encoder.checkpoint": "toy",
            "encoder.pooling": "mean",
            "data.source": str(tmp_path / "pairs.csv"),
            "evaluation.data": "toy",
            "evaluation.own": [f"support={tmp_path / 'support'}"],
            "optimizer.batch_size": 8,
        },
        "test",
    )
    inputs = LOADER.load(config)
    _, ended = drained(run(config, inputs))
    found = {(s.task, s.split, s.metric, s.protocol, s.aggregation): s.value for s in ended.scores}
    expected = set(expected_measurements(inputs.sets, measures_of(config)))
    assert {score.measurement for score in ended.scores} == expected
    assert len({key[3] for key in found}) == 6  # two kinds, each whole and at two widths
    (dev,) = (t for t in inputs.sets.sts if (t.name, t.split) == ("STS-B", "dev"))
    (pairs,) = dev.subsets
    for width, name in ((8, "cosine@8"), (32, "cosine@32"), (32, "cosine")):
        left, right = (
            ended.encoder.encode(side)[:, :width] for side in (pairs.sentences1, pairs.sentences2)
        )
        lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        value = 100 * spearmanr((left * right).sum(1) / lengths, pairs.gold).statistic
        assert found["STS-B", "dev", "spearman", name, None] == pytest.approx(value, abs=1e-4)
    ndcg = {
        name: found["support", "dev", "ndcg@10", name, None]
        for name in ("retrieval", "retrieval@32", "retrieval@8")
    }
    assert ndcg["retrieval"] == ndcg["retrieval@32"] != ndcg["retrieval@8"]


def test_queries_are_encoded_as_queries(tmp_path: Path) -> None:
    write_domain(tmp_path, pairs=24, documents=30, queries=10)
    support = tmp_path / "support"
    common = {"method.name": "none", "encoder.checkpoint": "toy", "data.source": "toy"}
    own = {"evaluation.own": [f"support={support}"], "evaluation.suites": []}

    def scores(**prefixes: str) -> dict[str, Any]:
        config = parse_dotted({**common, **own, **prefixes}, "test")
        *_, last = run(config, InputLoader(None).load(config))
        return {s.metric: s.value for s in last.scores if s.split == "dev"}

    knobs = {"encoder.query_prefix": "a man says ", "encoder.text_prefix": "two dogs "}
    by_knob = scores(**knobs)
    # The same prefixes, written into the files.
    for name, prefix in zip(("queries", "corpus"), knobs.values(), strict=True):
        path = support / f"{name}.jsonl"
        path.write_text(path.read_text().replace('"text": "', f'"text": "{prefix}'))
    assert by_knob == scores()
    path = support / "queries.jsonl"
    path.write_text(path.read_text().replace("a man says ", "two dogs "))
    assert by_knob != scores()
