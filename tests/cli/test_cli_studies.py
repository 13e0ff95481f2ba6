"""What `show` and `verify` print of studies, and how studies are named on the way."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_samples import TOY, command, environment, invoke, refused, rows, run_code, tables

from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.score import Score
from tune_sentcl.space import load_space
from tune_sentcl.store import SearchRecord, StudyDriver, TrialRow

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale in which Python encodes nothing but ASCII."""
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
    space = load_space("smoke")
    with StudyDriver.open(path, space=space, command=["test"]) as driver:
        driver.record(SearchRecord(tuple(map(str, asked)), "tpe", 0))
        for seed, (trial_id, scores) in enumerate(values.items()):
            config = space.configurations[seed % 2].model_copy(update={"seed": seed // 2})
            names: dict[str, Any] = {
                "trial_id": trial_id,
                "configuration": f"c{seed % 2}",
                "space": "smoke",
            }
            row = TrialRow(config, **names, origin="grid", status="finished")
            driver.commit(row, [_score(*item) for item in scores.items()])
    return path


def _score(objective: Objective, value: float) -> Score:
    joined: Any = "all" if objective == STS12 else None
    split: Any = objective.split
    named = ("sts", objective.task, split, objective.metric, objective.protocol)
    return Score(*named, "toy", value, 9, aggregation=joined)


def shown(*arguments: object) -> list[dict[str, str]]:
    """The first table of `show`: its trials."""
    done = invoke("show", *arguments)
    assert (done.code, done.err) == (0, "")
    return tables(done.out)[0]


def names(*arguments: object) -> list[str]:
    return [row["trial"] for row in shown(*arguments)]


def test_trials_are_ranked_by_what_the_last_search_asked_or_is_asked_now(place: Path) -> None:
    study = write_study(place / "study", VALUES, [PEARSON])
    done = invoke("show", study)
    assert done.out.startswith("dev: STS-B:pearson:dev, the objective\n")
    trials, over_seeds = tables(done.out)
    assert [row["trial"] for row in trials] == ["t1", "t2", "t3", "t4"]
    assert [row["dev"] for row in trials] == ["61.00", "60.00", "59.00", "58.00"]
    assert [row["configuration"] for row in over_seeds] == ["c0", "c1"]
    assert [row["dev"] for row in over_seeds] == ["60.00 ± 1.41", "59.00 ± 1.41"]
    assert names(study, "--objective", "stsb:Spearman") == ["t2", "t3", "t1", "t4"]
    # Nothing is chosen by it here, so that a test split needs no leave.
    by_test = shown(study, "--objective", "STS12:spearman")
    assert [row["test"] for row in by_test] == ["56.00", "55.00", "55.00", ""]
    assert [row["trial"] for row in by_test] == ["t3", "t1", "t2", "t4"]
    assert "dev" not in by_test[0] and "Pareto" not in by_test[0]


def test_the_front_of_two_objectives_is_marked(place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN, STS12])
    asked = ("--objective", "STS-B:spearman", "--objective", "STS-B:pearson")
    trials = [(row["trial"], row["spearman"], row["Pareto"]) for row in shown(study, *asked)]
    assert trials == [
        ("t2", "72.00", "*"),
        ("t3", "71.00", ""),
        ("t1", "70.00", "*"),
        ("t4", "69.00", ""),
    ]


def test_a_limit_shortens_the_tables_and_says_so(place: Path) -> None:
    many = {f"t{number:03d}": {SPEARMAN: float(number)} for number in range(103)}
    study = write_study(place / "study", many, [SPEARMAN])
    ranked = sorted(many, reverse=True)
    for limit, count in (((), 100), (("--limit", 1), 1), (("--limit", 103), 103)):
        assert names(study, *limit) == ranked[:count]
        out = invoke("show", study, *limit).out
        assert ("--limit 0 prints all" in out) == (count < 103)
        assert count == 103 or f"{103 - count} more" in out
    assert names(study, "--limit", 0) == ranked
    # Programs are given everything.
    assert len(rows("show", study, "--limit", 1)) == 103
    assert len(invoke("show", study, "--limit", 1, "--csv").out.splitlines()) == 104


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("STS99:spearman", ["STS99:spearman:dev", "no finished trial has this score"]),
        (
            "SICK-R:spearman",
            ["the study has STS-B:pearson:dev, STS-B:spearman:dev, STS12:spearman:t"],
        ),
        (
            "STS12:pearson",
            ["STS12:pearson:test", "the study has STS12:spearman:test, STS-B:pearson"],
        ),
        ("STS-B:accuracy", ["STS-B:accuracy", "spearman or pearson"]),
    ],
)
def test_a_score_that_a_study_lacks_is_refused(text: str, words: list[str], place: Path) -> None:
    """By each command that takes one, under the name of its option."""
    study = write_study(place / "study", VALUES, [SPEARMAN])
    for named in (
        *(("show",), ("show", "--json"), ("show", "--csv"), ("show", "--watch"), ("report",)),
        *(("report", "--format", "csv"), ("report", study), ("judge",), ("judge", "c0", "c1")),
    ):
        done = invoke(named[0], study, *named[1:], "--objective", text)
        refused(done, "--objective: ", *words)
        assert done.out == ""
    refused(invoke("export", study, "--to", "model", "--best", text), "--best: ", *words)
    assert [path.name for path in place.iterdir()] == ["study"]


def test_a_study_without_scores_refuses_none(place: Path) -> None:
    """Its search may be measuring the score now."""
    study = write_study(place / "study", {}, [SPEARMAN])
    done = invoke("show", study, "--objective", "STS12:spearman")
    assert (done.code, done.err) == (0, "no trial has ended yet\n")


@pytest.mark.parametrize(
    ("name", "variables", "said"),
    [
        ("\u00dcbung".encode(), {}, "\u00dcbung: must be a study"),
        # Python reads C as UTF-8, if it may.
        ("\u00dcbung".encode(), {"LC_ALL": "C"}, "\u00dcbung: must be a study"),
        ("\u00dcbung".encode(), ASCII, "error: '\\udcc3\\udc9cbung': must be UTF-8. Set LC_ALL"),
        ("\u00dcbung".encode("latin-1"), {}, "error: '\\udcdcbung': must be UTF-8. Set LC_ALL"),
    ],
)
def test_a_study_s_name_in_any_locale(
    name: bytes, variables: dict[str, str], said: str, place: Path
) -> None:
    env = {**environment(), "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run(
        [*map(os.fsencode, command("show")), name], capture_output=True, env=env, check=False
    )
    err = done.stderr.decode()
    assert (done.returncode, err.count("\n"), said in err) == (2, 1, True), err


def test_a_table_is_printed_in_ascii(place: Path) -> None:
    env = {**environment(), **ASCII}
    done = subprocess.run(command("spaces"), capture_output=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"???" in done.stdout and b"scl/lambda" in done.stdout


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
            refused(done, "contain a user, password, query")
            assert "s3cr3tvalue1" not in done.out + done.err
    refused(invoke("show", f"{url}-gone"), "gone", "must be a study")


def test_plan_needs_a_value_of_the_objective_and_no_other_score(place: Path) -> None:
    ids = [row["trial_id"] for row in rows("plan", "smoke")]
    write_study(place / "study", {name: {SPEARMAN: 70.0} for name in ids}, [SPEARMAN])
    planned = rows("plan", "smoke", "--study", "study")
    assert {row["status"] for row in planned} == {"finished"}
    done = invoke("plan", "smoke", "--study", "study", "--objective", "SICK-R:spearman")
    refused(done, "no such score", "SICK-R:spearman:dev", "tune-sentcl measure STUDY")


def test_reading_loads_nothing_that_it_does_not_use(place: Path) -> None:
    write_study(place / "a", VALUES, [SPEARMAN])
    done = run_code("""
import sys, tune_sentcl.cli
from tune_sentcl import read_study
read_study("a").wide()
print([name for name in ("duckdb", "polars", "torch", "optuna") if name in sys.modules])
""")
    assert (done.code, done.out.strip()) == (0, "[]"), done.err


VERIFY_KEYS = ["table", "row", "task", "paper", "ours", "sd", "n", "verdict", "note"]


def test_json_has_a_row_for_every_number_and_people_have_the_counts(held: Path) -> None:
    done = invoke("verify", held, "--paper", "CLSR", "--json")
    assert done.code == 0
    rows = json.loads(done.out)
    assert len(rows) == 75 and all(list(row) == VERIFY_KEYS for row in rows)
    assert {row["verdict"] for row in rows} <= {"NOT RUN", "NOT COMPARABLE"}
    done = invoke("verify", held, "--paper", "CLSR")
    assert done.code == 0 and "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    legend = done.out.rstrip().rpartition("\n\n")[2]
    assert "CLSR, Table 2" not in invoke("verify", held, "--paper", "CLSR", "--table", 1).out
    not_run = sum(row["verdict"] == "NOT RUN" for row in rows)
    assert f"{not_run:4} NOT RUN" in legend and "the study has no score for this number" in legend


def test_bad_names_are_refused(held: Path, tmp_path: Path) -> None:
    refused(invoke("verify", held, "--paper", "conisi"), "must be SCL, ConIsI or CLSR", "ConIsI?")
    refused(invoke("verify", held, "--paper", "CLSR", "--table", 9), "--table", "1, 2, 3, 4")
    refused(invoke("verify", tmp_path / "none", "--paper", "CLSR"), "none")
