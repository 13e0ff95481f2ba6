"""What each command prints, and how it ends when all is well or a run fails."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from cli_samples import SMOKE, TOY, invoke, refused, rows, run_code, snapshot, trials
from disk_samples import write
from plugin_samples import unchanged_registry

from tune_sentcl.space import space_names
from tune_sentcl.store.rows import SCORES, trials_schema

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

COMMANDS = (
    "",
    "spaces",
    "plan",
    "check",
    "search",
    "measure",
    "train",
    "evaluate",
    "data check",
    "show",
)
HEAVY = ("torch", "ray", "transformers", "optuna", "pandas", "pyarrow", "datasets", "scipy")
_HELP = """
import sys
from tune_sentcl.cli import main
codes = []
for command in {commands!r}:
    sys.argv = ["tune-sentcl", *command.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
print(codes, sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""


def test_help_imports_nothing_heavy() -> None:
    done = run_code(_HELP.format(commands=COMMANDS, heavy=HEAVY))
    assert (done.code, done.err.strip()) == (0, f"{[0] * len(COMMANDS)} []")
    assert done.out.count("Usage: ") == len(COMMANDS)


def test_spaces(place: Path) -> None:
    listed = rows("spaces")
    assert [row["name"] for row in listed] == space_names()
    smoke = {"name": "smoke", "paper": "", "tables": [], "trials": 2}
    assert rows("spaces", "smoke") == [smoke]
    assert smoke in listed
    write(place / "mine.toml", SMOKE.replace('paper = ""  ', "# none "))
    assert rows("spaces", "mine.toml")[0]["paper"] == ""
    assert all(name in invoke("spaces").out for name in space_names())
    shown = invoke("spaces", "scl/lambda")
    assert (shown.code, shown.err) == (0, "")
    for word in ("Table 4", "trials: 6", "method.lambda", "0.05 .. 2 (log)", "sbert | scl"):
        assert word in shown.out


def test_plan_lists_what_would_run(place: Path) -> None:
    done = invoke("plan", "smoke", "--json", "--seeds", "3,5", "--samples", "2")
    planned = json.loads(done.out)
    assert [(row["lambda"], row["seed"], row["status"]) for row in planned] == [
        (0.3, 3, "to run"),
        (0.3, 5, "to run"),
        (0.7, 3, "to run"),
        (0.7, 5, "to run"),
    ]
    # Two first seeds, and the second seed of the better one.
    ends = [line.split()[0] for line in done.err.splitlines() if "  the end" in line]
    assert ends == ["2", "1"]
    assert "the grid trains to the end: 2 configurations, 4 trials" in done.err
    shown = invoke("plan", "smoke", "--seeds", "3,5")
    assert (shown.code, shown.err) == (0, "")
    assert len({row["trial_id"] for row in planned}) == 4
    assert all(str(row["trial_id"])[:8] in shown.out for row in planned)
    assert "4 trials so far, 4 of them to run" in shown.out
    assert snapshot(place) == {}


def test_plan_refuses_what_a_search_refuses(place: Path) -> None:
    refused(invoke("plan", "smoke", "--set", "data.source=snli"), "needs a data root")
    write(place / "notes.txt", "mine")
    refused(invoke("plan", "smoke", "--study", place), "must be a study or empty")


def test_evaluate_prints_the_scores_table(sts_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = ("evaluate", "toy", "--toy", "--suite", "sts")
    plain = rows(*toy)
    assert all(list(row) == SCORES.names for row in plain)
    tasks = {row["task"] for row in plain if row["subset"] is None}
    assert tasks == {"STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"}
    assert {(row["data"], row["trial_id"]) for row in plain} == {("toy", None)}
    values = [row["value"] for row in plain]
    assert [row["value"] for row in rows(*toy, "--pooling", "cls")] != values
    scaled = [row["value"] for row in rows(*toy, "--normalize")]
    assert scaled == pytest.approx(values, abs=0.5)
    assert "SICK-R" in invoke(*toy).out
    given = rows("evaluate", "toy", "--data", sts_root)
    assert {row["data"] for row in given} == {"root"}
    monkeypatch.setenv("TUNE_SENTCL_DATA", str(sts_root))
    assert rows("evaluate", "toy") == given


def test_json_is_alone_on_stdout(place: Path) -> None:
    # Finds what a plugin prints before the JSON array.
    code = """import tune_sentcl
print("loading")


@tune_sentcl.task("spoken", metrics=("accuracy",))
def score(encode, split):
    print("scoring")
    return {"accuracy": 1.0}
"""
    Path("spoken.py").write_text(code)
    given = ("evaluate", "toy", "--toy", "--suite", "none", "--own", "plugin:spoken")
    with unchanged_registry():
        done = invoke(*given, "--plugin", "spoken.py", "--json")
    assert [row["value"] for row in json.loads(done.out)] == [100.0]
    assert "loading" in done.err and "scoring" in done.err


def test_the_demo_needs_a_folder_that_it_can_write(place: Path) -> None:
    Path("file").write_text("")
    done = invoke("demo", "--data", "file/below", "--files")
    assert done.code == 2 and "--data: file/below: cannot be written" in done.err


def test_train_prints_scores_and_keeps_nothing(place: Path) -> None:
    scores = rows("train", *TOY)
    assert all(list(row) == SCORES.names for row in scores)
    assert len({row["trial_id"] for row in scores}) == 1
    assert "STS-B" in invoke("train", *TOY).out
    assert snapshot(place) == {}


def test_train_with_a_study_runs_a_trial_once(held: Path, place: Path) -> None:
    shutil.copytree(held, place / "study")
    before = snapshot(place / "study" / "trials")
    again = invoke("train", *TOY, "--study", "study", "--json")
    assert {row["data"] for row in json.loads(again.out)} == {"toy"}
    assert again.code == 0 and "finished" not in again.err
    assert snapshot(place / "study" / "trials") == before
    other = invoke("train", *TOY, "--set", "seed=1", "--study", "study", "--json")
    ids = [{row["trial_id"] for row in json.loads(done.out)} for done in (again, other)]
    assert "finished" in other.err and ids[0].isdisjoint(ids[1])
    assert len(trials("study")) == 2


HERE = ("--launcher", "local", "--gpus-per-trial", "0")


def test_a_study_of_single_trials_measures_what_its_first_asked_for(
    held: Path, place: Path
) -> None:
    shutil.copytree(held, place / "study")
    more = ("--set", 'evaluation.protocols=["cosine","relatedness"]')
    way = "measure STUDY --set 'evaluation.protocols=[\"relatedness\"]'"
    refused(invoke("train", *TOY, *more, "--study", "study"), way)
    done = invoke("measure", "study", *more, *HERE)
    assert done.code == 0, done.err
    assert "1 trials were scored in this run, 0 failed. Study: study" in done.out
    assert "relatedness" in invoke("train", *TOY, "--study", "study").out
    other = invoke("train", *TOY, "--set", "seed=1", "--study", "study")
    assert other.code == 0 and "relatedness" in other.out, "new trials get all"
    assert {row["origin"] for row in trials("study")} == {"single"}
    assert "0 trials were scored in this run" in invoke("measure", "study", *HERE).out


def test_show_prints_the_trials_table(held: Path) -> None:
    (row,) = trials(held)
    assert list(row) == [*trials_schema().names, "rank", "verdict"]
    assert (row["rank"], row["verdict"]) == (1, "winner")
    assert (row["status"], row["origin"], row["data.limit"]) == ("finished", "single", 32)
    assert row["evaluation.suites"] == ["sts"]
    assert row["encoder.share_duplicates"] is True
    assert row["method.cross_premise_label"] is None
    done = invoke("show", held, "--csv")
    (line,) = csv.DictReader(io.StringIO(done.out))
    assert (list(line), line["trial_id"]) == ([*row], row["trial_id"])
    shown = invoke("show", held)
    assert (shown.code, shown.err) == (0, "")
    assert str(row["trial_id"])[:8] in shown.out


def test_a_run_that_fails(place: Path) -> None:
    bad = (*TOY, "--set", "optimizer.lr=1e30", "--set", "optimizer.batch_size=8")
    for study in ((), ("--study", "study")):
        done = invoke("train", *bad, *study)
        assert (done.code, done.out) == (1, "")
        assert "error: " in done.err and "finite" in done.err and "Traceback" not in done.err
    (row,) = trials("study")
    assert (row["status"], row["error_type"]) == ("failed", "NonFiniteError")
    assert row["objective"] is None
    assert "failed" in invoke("show", "study").out
    assert snapshot(place / "study" / "scores") == {}
