"""What `show` prints of a study whose numbers are known, and how studies are named on the way."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from cli_samples import TOY, Done, invoke, refused, run_code, tables

from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.score import Aggregation, Score, Split
from tune_sentcl.space import load_space
from tune_sentcl.store import SearchRecord, StudyDriver, TrialRow
from tune_sentcl.tuning.resources import usable_cores

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

SPEARMAN, PEARSON, STS12 = parse_objectives(
    ["STS-B:spearman", "STS-B:pearson", "STS12:spearman"], allow_test=True
)
VALUES: dict[str, dict[Objective, float]] = {
    "t1": {SPEARMAN: 70.0, PEARSON: 61.0, STS12: 55.0},
    "t2": {SPEARMAN: 72.0, PEARSON: 60.0, STS12: 55.0},
    "t3": {SPEARMAN: 71.0, PEARSON: 59.0, STS12: 56.0},
    "t4": {SPEARMAN: 69.0, PEARSON: 58.0},
}


def write_study(
    path: Path, values: Mapping[str, Mapping[Objective, float]], asked: Sequence[Objective]
) -> Path:
    """A study of the smoke space whose last search asked for some objectives."""
    record = SearchRecord(tuple(map(str, asked)), "tpe", 0)
    space = load_space("smoke")
    with StudyDriver.open(path, space=space, command=["test"]) as driver:
        driver.record(record)
        for seed, (trial_id, found) in enumerate(values.items()):
            config = space.configurations[seed % 2].model_copy(update={"seed": seed // 2})
            driver.commit(
                TrialRow(
                    config,
                    trial_id=trial_id,
                    configuration=f"c{seed % 2}",
                    space="smoke",
                    origin="grid",
                    status="finished",
                ),
                [_score(*item) for item in found.items()],
            )
    return path


def _score(objective: Objective, value: float) -> Score:
    split: Split = "dev" if objective.split == "dev" else "test"
    joined: Aggregation | None = "all" if objective == STS12 else None
    named = ("sts", objective.task, split, objective.metric, objective.protocol)
    return Score(*named, "toy", value, 9, aggregation=joined)


def order(done: Done) -> list[str]:
    assert (done.code, done.err) == (0, "")
    return [row["trial"] for row in tables(done.out)[0]]


def test_trials_are_ranked_by_what_the_last_search_asked(place: Path) -> None:
    study = write_study(place / "study", VALUES, [PEARSON])
    done = invoke("show", study)
    assert done.out.startswith("dev: STS-B:pearson:dev, the objective\n")
    trials, over_seeds = tables(done.out)
    assert [row["trial"] for row in trials] == ["t1", "t2", "t3", "t4"]
    assert [row["dev"] for row in trials] == ["61.00", "60.00", "59.00", "58.00"]
    assert [row["configuration"] for row in over_seeds] == ["c0", "c1"]
    assert [row["dev"] for row in over_seeds] == ["60.00 ± 1.41", "59.00 ± 1.41"]


def test_trials_are_ranked_by_what_is_asked_for_now(place: Path) -> None:
    study = write_study(place / "study", VALUES, [PEARSON])
    # Nothing is chosen by it here, so that a test split needs no leave.
    by_test = tables(invoke("show", study, "--objective", "STS12:spearman").out)[0]
    assert [row["test"] for row in by_test] == ["56.00", "55.00", "55.00", ""]
    assert [row["trial"] for row in by_test] == ["t3", "t1", "t2", "t4"]
    assert "dev" not in by_test[0] and "Pareto" not in by_test[0]
    assert order(invoke("show", study, "--objective", "stsb:Spearman")) == ["t2", "t3", "t1", "t4"]


def test_the_front_of_two_objectives_is_marked(place: Path) -> None:
    study = write_study(place / "study", VALUES, [PEARSON])
    asked = ("--objective", "STS-B:spearman", "--objective", "STS-B:pearson")
    trials = tables(invoke("show", study, *asked).out)[0]
    assert {row["trial"]: row["Pareto"] for row in trials} == {
        "t1": "*",
        "t2": "*",
        "t3": "",
        "t4": "",
    }
    assert [row["trial"] for row in trials] == ["t2", "t3", "t1", "t4"]
    assert [row["spearman"] for row in trials] == ["72.00", "71.00", "70.00", "69.00"]
    both = write_study(place / "both", VALUES, [SPEARMAN, STS12])
    marked = {row["trial"]: row["Pareto"] for row in tables(invoke("show", both).out)[0]}
    assert marked == {"t1": "", "t2": "*", "t3": "*", "t4": ""}


@pytest.mark.parametrize(("limit", "shown"), [(1, 1), (3, 3), (4, 4), (9, 4), (0, 4)])
def test_a_limit_shortens_the_tables_and_says_so(limit: int, shown: int, place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    done = invoke("show", study, "--limit", limit)
    assert order(done) == ["t2", "t3", "t1", "t4"][:shown]
    assert ("--limit 0 prints all" in done.out) == (shown < 4)
    if shown < 4:
        assert f"{4 - shown} more" in done.out
    # Programs are given everything.
    assert len(json.loads(invoke("show", study, "--limit", limit, "--json").out)) == 4
    assert len(invoke("show", study, "--limit", limit, "--csv").out.splitlines()) == 5


def test_a_long_study_is_not_printed_whole_unless_asked(place: Path) -> None:
    many = {f"t{number:03d}": {SPEARMAN: float(number)} for number in range(103)}
    study = write_study(place / "study", many, [SPEARMAN])
    done = invoke("show", study)
    assert order(done) == [f"t{number:03d}" for number in range(102, 2, -1)]
    assert "3 more" in done.out
    assert len(order(invoke("show", study, "--limit", "0"))) == 103


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("STS99:spearman", ["STS99:spearman", "no trial has such a task"]),
        ("STS-B:accuracy", ["STS-B:accuracy", "spearman or pearson"]),
        ("MR:f1", ["MR:f1", "accuracy"]),
    ],
)
def test_what_is_no_objective_ranks_nothing(text: str, words: list[str], place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    refused(invoke("show", study, "--objective", text), *words)


def test_a_study_lies_where_its_url_points_and_no_credentials_are_taken(place: Path) -> None:
    url = f"file://{place}/study"
    done = invoke("train", *TOY, "--study", url)
    assert done.code == 0, done.err
    assert f"Study: {url}" in done.err
    assert invoke("show", url).code == 0
    # All of it lies where the URL points, the dashboard's journal too.
    assert [path.name for path in place.iterdir()] == ["study"]
    assert (place / "study" / "optuna.journal").exists()
    for words in (("train", *TOY, "--study"), ("show",)):
        for secret in (f"{url}?access_key=s3cr3tvalue1", "s3://KEY:s3cr3tvalue1@bucket/study"):
            done = invoke(*words, secret)
            refused(done, "no user, password, query")
            assert "s3cr3tvalue1" not in done.out + done.err
    refused(invoke("show", f"{url}-gone"), "gone", "must be a study")


def plan(*options: object) -> list[dict[str, object]]:
    done = invoke("plan", "smoke", "--json", *options)
    assert done.code == 0, done.err
    found: list[dict[str, object]] = json.loads(done.out)
    return found


def test_plan_says_what_lacks_a_score_and_what_would_be_trained_again(place: Path) -> None:
    # The trials have a row and a dev score, but not all scores, and no weights are left.
    ids = [str(row["trial_id"]) for row in plan()]
    write_study(place / "study", {name: {SPEARMAN: 70.0} for name in ids}, [SPEARMAN])
    given = ("--study", "study")
    assert [row["status"] for row in plan(*given)] == [
        "finished; lacks a score, its weights were not kept"
    ] * 2
    told = invoke("plan", "smoke", *given)
    assert "2 lack a requested score" in told.out and "--retrain" in told.out
    assert [row["status"] for row in plan(*given, "--retrain")] == ["to train again"] * 2
    # Without a value of the objective itself there is nothing to go by.
    asked = (*given, "--objective", "SICK-R:spearman")
    refused(invoke("plan", "smoke", *asked), "no such score", "SICK-R:spearman:dev", "--retrain")
    assert [row["status"] for row in plan(*asked, "--retrain")] == ["to train again"] * 2


def test_plan_counts_trials_at_a_time() -> None:
    seeds = ",".join(map(str, range(8)))
    for option, at_once in ((("--max-concurrent", "1"), 1), ((), min(16, usable_cores()))):
        done = invoke("plan", "smoke", "--seeds", seeds, "--gpus-per-trial", "0", *option)
        assert (done.code, done.err) == (0, "")
        assert f" with {at_once} at a time" in done.out


def test_a_study_of_a_part_that_went_by_the_name_of_the_whole_is_still_read(place: Path) -> None:
    space = load_space("smoke", {"data.source": "snli"})
    part = "nli/snli_train_partial.parquet"
    with StudyDriver.open(place / "old", space=space, command=["test"]) as driver:
        driver.record(SearchRecord((str(SPEARMAN),), "tpe", 0))
        driver.commit(
            TrialRow(
                space.configurations[0],
                trial_id="t1",
                configuration="c",
                space="smoke",
                origin="grid",
                status="finished",
                data_source=part,
            ),
            [_score(SPEARMAN, 70.0)],
        )
    (shown,) = json.loads(invoke("show", "old", "--json").out)
    assert (shown["trial_id"], shown["data_source"]) == ("t1", part)
    # It goes on under the file's own name, or for so many rows.
    refused(invoke("search", "smoke", "--study", "old", "--set", "data.source=snli"), "data root")


def test_reading_loads_nothing_that_they_do_not_use(place: Path) -> None:
    write_study(place / "a", VALUES, [SPEARMAN])
    code = (
        "import sys, tune_sentcl.cli; from tune_sentcl import read_study; read_study('a').wide()"
    )
    code += "; print([m for m in ('duckdb', 'polars', 'torch', 'optuna') if m in sys.modules])"
    done = run_code(code)
    assert (done.code, done.out.strip()) == (0, "[]"), done.err
