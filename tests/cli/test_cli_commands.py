"""What each command prints, and how it ends when all is well or a run fails."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from cli_samples import SMOKE, TOY, Done, invoke, refused, run_code, snapshot, write_pairs
from disk_samples import write

from tune_sentcl.space import space_names
from tune_sentcl.store.schema import SCORES, trials_schema

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

COMMANDS = (
    "",
    "spaces",
    "plan",
    "check",
    "search",
    "train",
    "evaluate",
    "data",
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


def rows(done: Done) -> list[dict[str, object]]:
    """The JSON array that is all of stdout."""
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert isinstance(found, list)
    assert all(isinstance(row, dict) for row in found)
    return found


def test_no_command_shows_the_commands() -> None:
    done = invoke()
    assert done.code == 2
    assert "search" in done.out + done.err


def test_spaces_as_json() -> None:
    found = rows(invoke("spaces", "--json"))
    assert [row["name"] for row in found] == space_names()
    for row in found:
        assert list(row) == ["name", "paper", "tables", "trials"]
        assert isinstance(row["paper"], str)
        assert isinstance(row["tables"], list)
        assert isinstance(row["trials"], int)
        assert rows(invoke("spaces", str(row["name"]), "--json")) == [row]
    assert found[space_names().index("smoke")] == {
        "name": "smoke",
        "paper": "",
        "tables": [],
        "trials": 2,
    }


def test_spaces_for_people() -> None:
    listed = invoke("spaces")
    assert (listed.code, listed.err) == (0, "")
    assert all(name in listed.out for name in space_names())
    shown = invoke("spaces", "scl/lambda")
    assert (shown.code, shown.err) == (0, "")
    for word in ("Table 4", "trials: 6", "method.lambda", "0.05 .. 2 (log)", "sbert | scl"):
        assert word in shown.out


def test_a_space_of_ones_own(place: Path) -> None:
    write(place / "mine.toml", SMOKE.replace('paper = ""  ', "# none "))
    (row,) = rows(invoke("spaces", "mine.toml", "--json"))
    assert row["paper"] == ""


def test_plan_lists_what_would_run(place: Path) -> None:
    done = invoke("plan", "smoke", "--json", "--seeds", "3,5", "--trials", "2")
    found = rows(done)
    assert [(row["lambda"], row["seed"], row["status"]) for row in found] == [
        (0.3, 3, "to run"),
        (0.3, 5, "to run"),
        (0.7, 3, "to run"),
        (0.7, 5, "to run"),
    ]
    assert len({row["trial_id"] for row in found}) == 4
    # Two first seeds, and the second seed of the better one.
    assert [int(line.split()[0]) for line in done.err.splitlines() if "  the end" in line] == [
        2,
        1,
    ]
    assert "beside them 2 of the grid run whole, 4 trials" in done.err
    shown = invoke("plan", "smoke", "--seeds", "3,5")
    assert (shown.code, shown.err) == (0, "")
    assert all(str(row["trial_id"])[:8] in shown.out for row in found)
    assert "4 trials are known, 4 of them to run" in shown.out
    assert snapshot(place) == {}


def test_plan_without_data_lists_the_trials_and_fails_as_a_search_does() -> None:
    done = invoke("plan", "smoke", "--json", "--set", "data.source=snli")
    assert [(row["trial_id"], row["status"]) for row in json.loads(done.out)] == [
        (None, "unknown")
    ] * 2
    assert "needs a data root" in done.err
    assert done.code == 2


def test_plan_refuses_a_folder_that_a_search_refuses(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused(invoke("plan", "smoke", "--study", tmp_path), "must be a study or empty")


def test_evaluate_prints_the_scores_table() -> None:
    found = rows(invoke("evaluate", "toy", "--suite", "sts", "--toy", "--json"))
    assert all(list(row) == SCORES.names for row in found)
    tasks = {(row["task"], row["split"]) for row in found if row["subset"] is None}
    assert {task for task, _ in tasks} == {f"STS{year}" for year in range(12, 17)} | {
        "STS-B",
        "SICK-R",
    }
    assert {row["data"] for row in found} == {"toy"}
    assert {row["trial_id"] for row in found} == {None}
    other = rows(invoke("evaluate", "toy", "--toy", "--pooling", "cls", "--json"))
    assert [row["value"] for row in other] != [row["value"] for row in found]
    scaled = rows(invoke("evaluate", "toy", "--toy", "--normalize", "--json"))
    for row, same in zip(found, scaled, strict=True):
        assert row["value"] == pytest.approx(same["value"], abs=0.5)
    shown = invoke("evaluate", "toy", "--toy")
    assert (shown.code, shown.err) == (0, "")
    assert "SICK-R" in shown.out


def test_evaluate_reads_a_data_root(sts_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = rows(invoke("evaluate", "toy", "--data", sts_root, "--json"))
    assert {row["data"] for row in given} == {"root"}
    monkeypatch.setenv("TUNE_SENTCL_DATA", str(sts_root))
    assert rows(invoke("evaluate", "toy", "--json")) == given


def test_train_prints_scores_and_keeps_nothing(place: Path) -> None:
    done = invoke("train", *TOY, "--json")
    found = rows(done)
    assert all(list(row) == SCORES.names for row in found)
    assert len({row["trial_id"] for row in found}) == 1
    assert rows(invoke("train", *TOY, "--json")) == found
    shown = invoke("train", *TOY)
    assert shown.code == 0
    assert "STS-B" in shown.out
    assert snapshot(place) == {}


def test_train_with_a_study_runs_a_trial_once(held: Path, place: Path) -> None:
    shutil.copytree(held, place / "study")
    before = snapshot(place / "study" / "trials")
    again = invoke("train", *TOY, "--study", "study", "--json")
    assert {row["data"] for row in rows(again)} == {"toy"}
    assert "finished" not in again.err
    assert snapshot(place / "study" / "trials") == before
    other = invoke("train", *TOY, "--set", "seed=1", "--study", "study", "--json")
    assert {row["trial_id"] for row in rows(other)}.isdisjoint(
        row["trial_id"] for row in rows(again)
    )
    assert "finished" in other.err
    assert len(rows(invoke("show", "study", "--json"))) == 2


def test_train_trains_again_what_has_lost_its_weights(held: Path, place: Path) -> None:
    shutil.copytree(held, place / "study")
    shutil.rmtree(place / "study" / "checkpoints")
    more = ["--set", 'evaluation.protocols=["cosine","relatedness"]', "--study", "study"]
    done = invoke("train", *TOY, *more)
    assert "--retrain trains them again" in done.err and "relatedness" not in done.out
    assert "relatedness" in invoke("train", *TOY, *more, "--retrain").out


def test_show_prints_the_trials_table(held: Path) -> None:
    (row,) = rows(invoke("show", held, "--json"))
    assert list(row) == trials_schema().names
    assert row["status"] == "finished"
    assert row["origin"] == "single"
    assert row["evaluation.suites"] == ["sts"]
    assert row["encoder.share_duplicates"] is True
    assert row["data.limit"] == 32
    assert row["method.cross_premise_label"] is None
    done = invoke("show", held, "--csv")
    assert (done.code, done.err) == (0, "")
    (line,) = csv.DictReader(io.StringIO(done.out))
    assert list(line) == trials_schema().names
    assert line["trial_id"] == row["trial_id"]
    shown = invoke("show", held)
    assert (shown.code, shown.err) == (0, "")
    assert str(row["trial_id"])[:8] in shown.out


def test_only_neutral_pairs_train_without_the_contrastive_term(place: Path) -> None:
    write_pairs(place / "neutral.parquet", label=[1] * 16)
    done = invoke(
        "train",
        *TOY,
        *("--set", f"data.source={place / 'neutral.parquet'}", "--set", "evaluation.data=toy"),
        *("--set", "method.name=scl", "--study", "study", "--json"),
    )
    assert rows(done)
    from tune_sentcl.analysis import read_study

    curves = read_study(place / "study").curves
    contrast = curves[curves["metric"].str.contains("contrastive")]
    assert len(contrast) > 0
    assert (contrast["value"] == 0).all()


def test_a_run_that_fails(place: Path) -> None:
    bad = (*TOY, "--set", "optimizer.lr=1e30", "--set", "optimizer.batch_size=8")
    alone = invoke("train", *bad)
    kept = invoke("train", *bad, "--study", "study")
    for done in (alone, kept):
        assert done.code == 1, done.err
        assert done.out == ""
        assert "finite" in done.err
        assert "Traceback" not in done.err
        assert "error: " in done.err
    (row,) = rows(invoke("show", "study", "--json"))
    assert (row["status"], row["error_type"]) == ("failed", "NonFiniteError")
    assert row["objective"] is None
    assert "failed" in invoke("show", "study").out
    assert snapshot(place / "study" / "scores") == {}
