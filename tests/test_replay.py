"""The replay of searches over tables of trials: regret, budgets, tables, policies."""

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from search_samples import LAMBDA, lambda_space, rows, run_planted
from stand_in import StandIn

from tune_sentcl.errors import BadInputError

FOLDER = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(FOLDER))

import replay as script  # noqa: E402 - found by the line above
from replay_peers import OUTSIDE, PEERS  # noqa: E402 - as above
from replay_search import OwnSearch, parse_policy  # noqa: E402 - found by the line above
from replay_table import Job, Table, read_table, replay, task_of  # noqa: E402

Score = Callable[[int, int, int], float | None]


def written(
    path: Path,
    score: Score,
    knobs: Mapping[str, Sequence[Any]],
    *,
    seeds: int = 1,
    points: int = 10,
) -> Path:
    """A table file; point 0 has a score that no search may see."""
    count = len(next(iter(knobs.values())))
    lines = [
        {
            "configuration": one,
            "seed": seed,
            "point": point,
            "score": score(one, seed, point) if point else 1e9,
            **{f"knob.{key}": values[one] for key, values in knobs.items()},
        }
        for one in range(count)
        for seed in range(seeds)
        for point in range(points + 1)
    ]
    pq.write_table(pa.Table.from_pylist(lines), path)
    return path


def curve(one: int, seed: int, point: int) -> float | None:
    """Scores that rise to the configuration's own level; every fifth one fails midway."""
    if one % 5 == 4 and point > 5:
        return None
    return -(float(one * 7 % 40) ** 2) / 10 - 30 / point + seed


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("tables")
    knobs = {"lr": [10.0 ** (one / 10 - 4) for one in range(40)], "size": list(range(1, 41))}
    return read_table(str(written(folder / "curves.parquet", curve, knobs, seeds=3)))


def one_row(table: Table, policy: str, *, budget: float = 5.0, repeats: int = 3) -> dict[str, Any]:
    made = script.Replays([table], [], [policy], budget=budget, workers=4, seed=0)
    (row,) = made.rows(repeats, 1)
    return row


def arguments(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    given = {"policy": None, "budget": [5.0], "workers": 4, "repeats": 1, "seed": 0, "jobs": 1}
    given |= {"held_out": False, "learn": [], "plot": None, "quick": False, "json": True}
    monkeypatch.setattr(script, "options", lambda *_: argparse.Namespace(**{**given, **changes}))


def test_regret_is_as_plain_loops_have_it(curves: Table) -> None:
    task = task_of(curves, 3)
    truths = []
    for scores in curves.scores[:, :, -1].tolist():
        failed = any(math.isnan(score) for score in scores)
        truths.append(-math.inf if failed else sum(scores) / len(scores))
    best, median = max(truths), statistics.median(truths)
    for index, truth in enumerate(truths):
        plain = min(1.0, (best - truth) / (best - median))
        assert task.regret(index) == pytest.approx(plain)
    assert task.regret(None) == 1
    assert {0.0, 1.0} <= set(map(task.regret, range(40)))


@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize(
    "policy",
    ["default", "--sampler random --seeds 0,1", "random-halving", "random-race"],
)
def test_no_policy_spends_more_than_its_budget(curves: Table, policy: str, workers: int) -> None:
    search = script.search_of(policy, 6.5)
    task = task_of(curves, 1)
    run = replay(task, search(task, []), 6.5, workers)
    assert 1 < run.cost <= 6.5
    assert run.choice in run.seen


def test_the_budget_ends_the_oldest_trainings_first(curves: Table) -> None:
    """16 workers do not share three trainings so that none of them ends."""
    task = task_of(curves, 0)
    run = replay(task, script.search_of("random", 3)(task, []), 3, 16)
    assert run.cost == 3 and run.choice is not None


def test_a_training_goes_on_from_where_it_stopped(curves: Table) -> None:
    """A stage costs only the points that its trainings lack."""
    seen: list[tuple[int, int]] = []

    class Twice:
        def __init__(self) -> None:
            self.jobs = [Job(0, 0, 3), Job(1, 0, 2), Job(0, 0, 5)]

        def next(self) -> Job | None:
            return self.jobs.pop(0) if self.jobs else None

        def point(self, job: Job, number: int, score: float) -> bool:
            assert score == curves.scores[job.configuration, task.seeds[0], number - 1]
            seen.append((job.configuration, number))
            return True

        def fail(self, job: Job) -> None:
            raise AssertionError

        def choice(self) -> None:
            return None

    task = task_of(curves, 0)
    assert replay(task, Twice(), 20, 1).cost == 0.7
    assert seen == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (0, 4), (0, 5)]


@pytest.mark.parametrize("policy", ["default", "optuna-tpe-multivariate-halving", "ray-asha"])
def test_the_same_seed_gives_the_same_run(curves: Table, policy: str) -> None:
    first, second = one_row(curves, policy), one_row(curves, policy)
    for row in (first, second):
        assert row.pop("search_seconds") > 0
    assert first == second


@pytest.mark.parametrize("policy", sorted(set(PEERS) - {"portfolio", "wrong-prior", *OUTSIDE}))
def test_every_peer_chooses_from_what_it_has_seen(curves: Table, policy: str) -> None:
    row = one_row(curves, policy, budget=8, repeats=2)
    assert row["regret_visited"] <= row["regret_mean"] < 1
    assert 0 < row["cost"] <= 8


def test_the_sampler_is_told_the_configurations_that_ran(curves: Table) -> None:
    task = task_of(curves, 0)
    search = OwnSearch(task, parse_policy("--scheduler none --seeds 0 --samples 12"), 12)
    run = replay(task, search, 12, 4)
    sampler: Any = search._session.queue._sampler
    study = sampler._study
    complete = [t.params for t in study.get_trials() if t.state.name == "COMPLETE"]
    assert all(trial.params in curves.params for trial in study.get_trials())
    assert all(curves.params[one] in complete for one in run.seen if one % 5 != 4)
    failed = [one for one in run.seen if one % 5 == 4]
    errors = [search._session.history.error_type(f"{task.names[one]}-0") for one in failed]
    assert failed and set(errors) == {"NonFiniteError"}


def test_the_default_learns_from_other_tables_alone(curves: Table) -> None:
    again = replace(curves, path=f"{Path(curves.path).parent}/./curves.parquet")
    regrets: list[float] = []
    for older in ([replace(curves, path="copy")], [again], []):
        made = script.Replays([curves], older, ["default"], 1, 1, seed=0)
        regrets += [row["regret_mean"] for row in made.rows(9, 1)]
    assert regrets[0] == 0 < regrets[1] == regrets[2]


def test_a_study_is_a_table(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.1, 0.3, 0.5, ranges=LAMBDA)
    study = tmp_path / "study"

    def seen(config: Any) -> Sequence[tuple[int, float]]:
        return ((32, 10.0), (64, 20.0)) if config.seed else ((40, 5.0), (80, 15.0))

    def fate(config: Any) -> Any:
        return "fail" if config.method.lambda_ == 0.3 and config.seed else "finish"

    run_planted(space, study, StandIn(study, curve=seen, fate=fate), seeds=(0, 1))
    table = read_table(str(study))
    assert table.name == "study" and table.points == 10
    assert sorted(one["method.lambda"] for one in table.params) == [0.1, 0.3, 0.5]
    ends = {row["trial_id"]: row["objective"] for row in rows(study)}
    found = table.scores[:, :, -1]
    assert sorted(found[~np.isnan(found)]) == sorted(v for v in ends.values() if v is not None)
    assert np.isnan(found).sum() == 1
    assert set(table.scores[0, 0, :-1]) == {math.inf, 5.0}  # not evaluated yet, then once
    assert table.rows[0].tolist() == [8 * (part + 1) for part in range(10)]
    assert one_row(table, "default", budget=6)["cost"] <= 6
    assert one_row(table, "--scheduler none --samples 3", budget=6)["regret_mean"] == 0


def bad_tables(folder: Path) -> Iterator[tuple[Path, str]]:
    (folder / "text.parquet").write_text("no table")
    yield folder / "text.parquet", "must be a Parquet file or a study"
    yield folder / "absent.parquet", "must be a Parquet file or a study"
    pq.write_table(pa.table({"configuration": [1], "knob.lr": [0.1]}), folder / "few.parquet")
    yield folder / "few.parquet", "seed, point, score: must be a column"
    empty = written(folder / "empty.parquet", curve, {"lr": [0.1, 0.2]}, points=0)
    yield empty, "must have one row for each"
    yield written(folder / "same.parquet", curve, {"lr": [0.1, 0.1]}), "must differ between"
    yield (
        written(folder / "flat.parquet", lambda *_: 1.0, {"lr": [0.1, 0.2]}),
        "score: must differ",
    )
    text = {**{key: [1] for key in ("configuration", "seed", "point")}, "score": ["a"]}
    pq.write_table(pa.table(text), folder / "words.parquet")
    yield folder / "words.parquet", "must be a Parquet file or a study"


def test_bad_tables_are_refused_in_one_sentence(tmp_path: Path) -> None:
    for path, message in bad_tables(tmp_path):
        with pytest.raises(BadInputError, match=message):
            read_table(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": ["--keep 3"]}, "not keep"),
        ({"policy": ["--nonsense"]}, "--nonsense"),
        ({"policy": ["--sampler 'a"]}, "No closing quotation"),
        ({"policy": ["optuna-tpe:3"]}, "optuna-tpe:3: takes no numbers"),
        ({"policy": ["random-halving:1:2:3"]}, "takes a first rung"),
        ({"policy": ["nonsense"]}, "Peers: random"),
        ({"policy": ["--seeds 0,1,2,3"]}, "shows a search 3 seeds"),
        ({"policy": ["portfolio"]}, "--learn: must be given"),
        ({"policy": ["--learn-from learn"]}, "--learn-from: learn: needs --learn"),
        ({"budget": [5.0, 0.0]}, "--budget: 0.0: must be above 0"),
        ({"seed": -1}, "--seed: -1: must be at least 0"),
        ({"tables": ["absent.parquet"]}, "absent.parquet"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_exit_code_2(
    curves: Table,
    changes: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments(monkeypatch, **{"tables": [curves.path], **changes})
    with pytest.raises(SystemExit) as raised:
        script.main()
    assert raised.value.code == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and not said.out
