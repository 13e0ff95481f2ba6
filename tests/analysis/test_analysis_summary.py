"""The two summaries on studies whose numbers are known, and the front against a loop."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from analysis_samples import (
    DEV,
    PEARSON,
    SICK,
    SUBSET_TASKS,
    Status,
    Trial,
    config,
    objectives,
    score,
    summaries_of,
    write_study,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tune_sentcl.analysis import configurations, read_study
from tune_sentcl.analysis.frames import STS_TASKS
from tune_sentcl.cli import app
from tune_sentcl.errors import ObjectiveError
from tune_sentcl.objective import Objective
from tune_sentcl.results.standings import asked_objectives
from tune_sentcl.score import Score


def suite_of(values: Sequence[float | None]) -> list[Score]:
    """One test Spearman a task; beside it what must never be averaged in."""
    found = []
    for task, value in zip(STS_TASKS, values, strict=False):
        whole = score(Objective(task, "spearman", "test", "cosine"), value)
        others: list[dict[str, Any]] = [{"metric": "pearson"}, {"protocol": "relatedness"}]
        if task in SUBSET_TASKS:
            others += [{"aggregation": "mean"}, {"aggregation": "wmean"}]
            others += [{"aggregation": None, "subset": "part"}]
        found += [whole, *(replace(whole, value=-2.0, **other) for other in others)]
    return found


def test_trials_are_ranked_and_no_average_hides_a_missing_task(tmp_path: Path) -> None:
    whole = [70.0, 71.0, 72.0, 73.0, 74.0, 75.0, 76.0]
    trials = [
        Trial("t1", config(0), [score(DEV, 80.0), *suite_of(whole)], startup=30.0),
        Trial("t2", config(1), [score(DEV, 90.0), *suite_of(whole[:6])]),
        Trial("t3", config(2), [score(DEV, 99.0)], "failed"),
        Trial("t4", config(3), [], "pruned", stages=((0.25, 98.0), (0.0625, 99.0))),
        Trial("t6", config(4), [], "pruned", stages=((0.0625, 99.0),)),
        Trial("t5", config(0, "sbert"), suite_of([60.0] * 7)),
    ]
    table, _ = summaries_of(write_study(tmp_path, trials))
    assert list(table["trial_id"]) == ["t2", "t1", "t5", "t4", "t6", "t3"]
    assert list(table["objective"].fillna(-1.0)) == [90.0, 80.0, *[-1.0] * 4]
    ends = table.set_index("trial_id")[["seen", "last_score"]].dropna()
    assert ends.T.to_dict("list") == {"t4": [0.25, 98.0], "t6": [0.0625, 99.0]}
    average = table.set_index("trial_id")["sts_avg"]
    assert average["t1"] == pytest.approx(73.0)
    assert average["t5"] == pytest.approx(60.0)
    assert average[["t2", "t3", "t4"]].isna().all()
    first = table.set_index("trial_id").loc["t1"]
    assert first["method.name"] == "scl"
    assert set(table["seconds"]) == {2.0}  # the first trial of a worker is no slower than others
    assert list(table.columns) == [
        *("trial_id", "origin", "status", "method.name"),
        *("seed", "objective", "objective_test", "seen", "last_score", "sts_avg"),
        *("data", "seconds"),
    ]


def test_the_knobs_in_which_trials_differ_are_columns(tmp_path: Path) -> None:
    measures = {"own": ["mine=here"], "protocols": ["cosine"], "suites": ["sts", "transfer"]}
    trials = [
        Trial("t1", config(0, evaluation={"every": 5}), [score(DEV, 1.0)]),
        Trial("t2", config(1, "sbert"), [score(DEV, 2.0)]),
        Trial("t3", config(0, encoder={"pooling": "cls"}, evaluation=measures), [score(DEV, 3.0)]),
    ]
    study = write_study(tmp_path, trials)
    for table in (*summaries_of(study), read_study(tmp_path).wide()):
        knobs = {column for column in map(str, table) if "." in column and ":" not in column}
        # A knob that a method lacks is no difference, nor is what only measures.
        assert knobs == {"method.name", "encoder.pooling", "evaluation.every"}
    assert list(summaries_of(study)[0]["encoder.pooling"]) == ["cls", "mean", "mean"]


def test_the_test_scores_of_own_tasks_stand_beside_those_that_chose(tmp_path: Path) -> None:
    dev, test = objectives("docs:ndcg@10:dev", "docs:ndcg@10:test")
    trials = [
        Trial("t1", config(0), [score(dev, 50.0), score(test, 60.0)]),
        Trial("t2", config(1), [score(dev, 40.0), score(test, 70.0)]),
    ]
    study = write_study(tmp_path / "both", trials, [str(dev)])
    table, over_seeds = summaries_of(study)
    assert list(table["objective_test"]) == [60.0, 70.0]
    assert list(over_seeds["objective_test_mean"]) == [65.0]
    shown = CliRunner().invoke(app, ["show", study.files.where]).stdout
    assert "test: docs:ndcg@10:test, reported only" in shown and "70.00" in shown
    for asked in ((test,), (dev, test)):  # what chose is not told to choose nothing
        words = [word for one in asked for word in ("--objective", str(one))]
        shown = CliRunner().invoke(app, ["show", study.files.where, *words]).stdout
        assert (
            "reported only" not in shown and "objective_test" not in summaries_of(study, asked)[0]
        )
    only = [replace(trial, scores=trial.scores[:1]) for trial in trials]
    table, _ = summaries_of(write_study(tmp_path / "dev", only, [str(dev)]))
    assert "objective_test" not in table


@pytest.mark.parametrize("missing", [float("nan"), None])
def test_a_score_without_a_number_is_missing(tmp_path: Path, missing: float | None) -> None:
    scores = [score(DEV, missing), *suite_of([70.0] * 6 + [missing])]
    whole = Trial("t2", config(1), suite_of([70.0] * 7))
    table, over_seeds = summaries_of(
        write_study(tmp_path, [Trial("t1", config(0), scores), whole])
    )
    assert table.set_index("trial_id").loc["t1", ["sts_avg", "objective"]].isna().all()
    row = over_seeds.iloc[0]
    assert (row["objective_n"], row["sts_avg_n"]) == (0, 1)


def test_what_a_row_says_of_its_objective_does_not_count(tmp_path: Path) -> None:
    study = write_study(tmp_path, [Trial("t1", config(0), [score(PEARSON, 70.0)])])
    (file,) = (tmp_path / "trials").iterdir()
    table = pq.read_table(file)
    place = table.schema.get_field_index("objective")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array([80.5])), file)
    assert list(read_study(tmp_path).trials["objective"]) == [80.5]
    assert summaries_of(study)[0]["objective"].isna().all()


def test_configurations_are_means_over_their_finished_seeds(tmp_path: Path) -> None:
    trials = [
        Trial(f"a{seed}", config(seed), [score(DEV, value), *suite_of([value + 1] * 7)])
        for seed, value in enumerate((70.0, 72.0, 74.0))
    ]
    trials += [
        Trial("a3", config(3), [score(DEV, 1.0)], "pruned"),
        Trial("b0", config(0, "sbert"), [score(DEV, 90.0), *suite_of([9.0] * 7)]),
        Trial("c0", config(1000), [score(DEV, 60.0), *suite_of([50.0] * 7)], origin="confirm"),
    ]
    table = configurations(write_study(tmp_path, trials))
    names = ["configuration", "objective_mean", "objective_sd", "objective_n"]
    averages = ["sts_avg_mean", "sts_avg_n"]
    assert table[[*names, *averages]].fillna(-1.0).to_numpy().tolist() == [
        ["sbert", 90.0, -1.0, 1, pytest.approx(9.0), 1],
        ["scl", 72.0, 2.0, 3, pytest.approx(73.0), 3],
    ]
    again = ["confirm_mean", "confirm_n", "confirm_sts_avg_mean", "confirm_sts_avg_n"]
    assert table[again].to_numpy()[1].tolist() == [60.0, 1, pytest.approx(50.0), 1]


def test_each_objective_has_a_column_and_the_first_ranks(tmp_path: Path) -> None:
    trials = [
        Trial("t1", config(0), [score(DEV, 70.0), score(PEARSON, 60.0)]),
        Trial("t2", config(1), [score(DEV, 71.0), score(PEARSON, 59.0), score(SICK, 50.0)]),
        Trial("t3", config(0, "sbert"), [score(DEV, 69.0), score(PEARSON, 58.0)]),
    ]
    study = write_study(tmp_path / "a", trials, ["STS-B:spearman", "STS-B:pearson"])
    table, over_seeds = summaries_of(study)
    assert list(table.columns) == [
        *("trial_id", "origin", "status", "method.name", "seed"),
        *("objective", "objective_2", "pareto", "data", "seconds"),
    ]
    assert list(table["objective_2"]) == [59.0, 60.0, 58.0]
    assert list(table["pareto"]) == [True, True, False]
    scl = over_seeds.set_index("configuration").loc["scl"]
    assert (scl["objective_mean"], scl["objective_2_mean"]) == (70.5, 59.5)
    assert (scl["objective_2_sd"], scl["objective_2_n"]) == (pytest.approx(0.5**0.5), 2)
    pearson, _ = summaries_of(study, [PEARSON])
    assert list(pearson["objective"]) == [60.0, 59.0, 58.0]
    three, over_seeds = summaries_of(study, [SICK, PEARSON, DEV])
    assert list(three["trial_id"]) == ["t2", "t1", "t3"]
    assert list(three["objective"].isna()) == [False, True, True]
    assert list(three["objective_3"]) == [71.0, 70.0, 69.0]
    assert list(three["pareto"]) == [True, False, False]  # the others lack an objective
    assert list(over_seeds["objective_n"]) == [1, 0]
    # A study that no search has recorded is ranked by what a search asks by itself.
    table, _ = summaries_of(write_study(tmp_path / "b", trials))
    assert list(table["objective"]) == [71.0, 70.0, 69.0]


def test_a_study_is_shown_before_its_search_has_the_first_score(tmp_path: Path) -> None:
    """A later search of the study asks for another task, and no trial has ended yet."""
    study = write_study(tmp_path, [Trial("t1", config(0), [score(DEV, 1.0)])], ["mine:spearman"])
    trials, over_seeds = summaries_of(study)
    assert list(trials["trial_id"]) == ["t1"]
    assert trials["objective"].isna().all() and list(over_seeds["objective_n"]) == [0]
    with pytest.raises(ObjectiveError, match="mine:spearman:dev: no finished trial has this sc"):
        asked_objectives(study, ["mine:spearman"])
    assert asked_objectives(study, [DEV]) == (DEV,)


# Few different numbers, so that ties are common; None: measured in vain, or not at all.
VALUES = st.none() | st.just(math.nan) | st.integers(0, 3).map(float)
POINTS = st.tuples(VALUES, VALUES, VALUES)
STATUSES = st.sampled_from(["finished", "finished", "finished", "pruned", "failed"])


def beats(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    pairs = list(zip(left, right, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def front(points: dict[str, tuple[float, ...]]) -> set[str]:
    """By definition, pair by pair; of points of which every number is known."""
    return {
        name
        for name, point in points.items()
        if not any(beats(other, point) for other in points.values())
    }


def is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


@settings(max_examples=12)
@given(st.lists(st.tuples(POINTS, STATUSES), max_size=7), st.integers(1, 3))
def test_the_front_is_what_no_trial_beats(
    found: list[tuple[tuple[float | None, ...], Status]], count: int
) -> None:
    (cost,) = objectives("STS-B:spearman", "cost:megabytes")[1:]
    asked = [DEV, PEARSON, cost][:count]
    named = {f"t{number}": one for number, one in enumerate(found)}
    trials = [
        Trial(
            name,
            config(0),
            [score(o, v) for o, v in zip((DEV, PEARSON, cost), values, strict=True)],
            status,
        )
        for name, (values, status) in named.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        table, _ = summaries_of(write_study(Path(folder), trials), asked)
    table = table.set_index("trial_id")
    assert set(table.index) == set(named)
    whole = {
        name: tuple(
            -value if one.is_cost else value
            for value, one in zip(values, asked, strict=False)
            if value is not None
        )
        for name, (values, status) in named.items()
        if status == "finished" and all(map(is_number, values[:count]))
    }
    if count == 1:
        assert "pareto" not in table
    else:
        assert {name for name in table.index if table.loc[name, "pareto"]} == front(whole)
    # Finished trials first, the best of them first, those without a number last.
    ranks = {"finished": 0, "pruned": 1, "failed": 2}
    keys = []
    for name, (values, status) in named.items():
        first = values[0] if status == "finished" and is_number(values[0]) else None
        keys.append((ranks[status], first is None, -(first or 0.0), name))
    assert list(table.index) == [name for *_, name in sorted(keys)]
