"""The command on a card, run: it trains the trial that the card is of, and no other."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from toy_generator.domain import write_domain
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.config import parse_dotted
from tune_sentcl.errors import StudyError
from tune_sentcl.export.model_folder import export_trial
from tune_sentcl.export.rerun_command import train_command
from tune_sentcl.launch import search
from tune_sentcl.space import load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.options import SearchOptions

SPACE = """name = "mine"
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = {pairs}
optimizer.lr = 5e-3
optimizer.batch_size = 16
evaluation.data = "toy"
evaluation.own = [{own}]
evaluation.classifier_seeds = 1
[[block]]
fixed.method.name = "mnr"
"""
OWN = {"evaluation.suites": [], "evaluation.own": ["mine=dev.csv"]}
BEST = {"evaluation.every": 1, "evaluation.select": "best"}


@pytest.fixture
def space(tmp_path: Path) -> Path:
    write_domain(tmp_path, pairs=48, documents=30, queries=12)
    path, own = tmp_path / "mine.toml", json.dumps(f"support={tmp_path / 'support'}")
    path.write_text(SPACE.format(pairs=json.dumps(str(tmp_path / "pairs.csv")), own=own))
    return path


def run(space: Path, study: Path, *objectives: str, keep: int = 1, **settings: Any) -> None:
    test = any(objective.endswith(":test") for objective in objectives)
    options = SearchOptions(
        launcher="local",
        gpus_per_trial=0.0,
        keep=keep,
        objectives=objectives,
        allow_test_objective=test,
    )
    outcome = search(load_space(space, settings), study, options=options)
    assert (outcome.ran, outcome.failures) == (1, 0)


def trained_again(text: str, folder: Path) -> Study:
    """What the one command in a text leaves as its study."""
    (command,) = re.findall(r"tune-sentcl (train --study [^`\n]*)", text)
    study = folder / "again"
    assert "--data" not in command  # the rows and the task are files
    words = command.replace("NEW_STUDY", str(study))
    result = CliRunner().invoke(app, [*shlex.split(words), "--gpus-per-trial", "0"])
    assert result.exit_code == 0, result.output
    return Study.read(study)


def scores_of(study: Study, trial_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = study.scores().to_pylist()
    rows = [row for row in found if row["trial_id"] == trial_id]
    return sorted(rows, key=lambda row: json.dumps({**row, "value": 0}))


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({"data.source": "pairs.csv", **OWN}, False),
        ({"data.source": "owner/name", **OWN}, False),
        ({"data.source": "pairs.csv", "evaluation.data": "toy"}, False),
        ({"data.source": "toy"}, False),
        ({"data.source": "pairs.csv"}, True),  # SentEval's STS
        ({"data.source": "toy + snli", **OWN}, True),
        ({"data.source": "toy", "evaluation.data": "root"}, True),
    ],
)
def test_a_data_root_is_named_only_if_files_in_it_are_read(
    settings: dict[str, Any], given: bool
) -> None:
    config = parse_dotted({"method.name": "mnr", **settings}, "test")
    command = train_command(json.dumps(config.nested()))
    assert command is not None and ("--data DATA_ROOT" in command) == given


@pytest.mark.parametrize(
    ("objectives", "settings"),
    [
        (["support:recall@100:dev"], {**BEST, "evaluation.suites": ["sts"]}),
        (["support:mrr@10:test"], {"evaluation.suites": []}),
        (["STS-B:spearman:dev", "support:mrr@10:dev"], {**BEST, "evaluation.suites": ["sts"]}),
    ],
)
def test_the_command_on_a_card_trains_that_trial(
    space: Path, tmp_path: Path, objectives: list[str], settings: dict[str, Any]
) -> None:
    if objectives == ["support:mrr@10:test"]:
        (tmp_path / "support" / "qrels" / "dev.tsv").unlink()
    study = tmp_path / "study"
    run(space, study, *objectives, **settings)
    found = export_trial(study, tmp_path / "model")
    again = trained_again((found.to / "README.md").read_text(), tmp_path)
    (row,) = again.trials().to_pylist()
    (known,) = Study.read(study).trials().to_pylist()
    for name in ("trial_id", "objective", "objective_name", "objective_2", "objective_2_name"):
        assert row[name] == known[name]
    scores = scores_of(again, row["trial_id"])
    assert scores == scores_of(Study.read(study), row["trial_id"]) and scores


def test_a_trial_of_an_earlier_search_is_told_by_what_compared_it(
    space: Path, tmp_path: Path
) -> None:
    """Its row says what the study's last search maximized; the error of lost weights is right."""
    first, then = "support:recall@100:dev", "STS-B:spearman:dev"
    study, settings = tmp_path / "study", {**BEST, "evaluation.suites": ["sts"]}
    run(space, study, first, keep=0, **settings)
    (before,) = Study.read(study).trials(["trial_id"]).to_pylist()
    run(space, study, then, keep=0, **settings)
    rows = {row["trial_id"]: row for row in Study.read(study).trials().to_pylist()}
    assert len(rows) == 2 and {row["objective_name"] for row in rows.values()} == {then}
    name = before["trial_id"]
    with pytest.raises(StudyError, match="has not kept its weights") as raised:
        export_trial(study, tmp_path / "model", trial=name)
    again = trained_again(str(raised.value), tmp_path)
    (row,) = again.trials().to_pylist()
    assert row["trial_id"] == name
    assert scores_of(again, name) == scores_of(Study.read(study), name)
