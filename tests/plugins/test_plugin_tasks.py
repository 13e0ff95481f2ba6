"""Evaluation tasks of a user's own files: objectives, versions, and tasks that fail."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_samples import TASK, registry
from search_samples import rows, run_here
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import DataError, StudyError
from tune_sentcl.evaluate import Measures
from tune_sentcl.evaluate.suites import evaluate
from tune_sentcl.launch import train_one
from tune_sentcl.plugins import EXTENSIONS, load_plugins
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.plan import make_plan

__all__ = ["registry"]

SPACE = """plugins = ["near.py"]
[fixed]
method.name = "scl"
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 48
optimizer.lr = 1e-3
optimizer.batch_size = 16
evaluation.every = 2
evaluation.select = "{select}"
evaluation.own = [{own}]
[[block]]
grid.method.lambda = [0.3, 0.7]
"""


def near_space(
    folder: Path, own: str = '"plugin:near"', code: str = TASK, select: str = "last"
) -> Space:
    (folder / "near.py").write_text(code)
    (folder / "near.toml").write_text(SPACE.format(own=own, select=select))
    return load_space(folder / "near.toml")


def test_a_task_is_an_objective_a_curve_a_column_and_a_picture(tmp_path: Path) -> None:
    space, study = near_space(tmp_path), tmp_path / "study"
    objectives = ("near:cosine@all:dev", "near:accuracy:dev:plugin")
    untrained = space.with_overrides({"method.name": "none", "evaluation.suites": []})
    options = SearchOptions(launcher="local", objectives=objectives[:1])
    notes = make_plan(untrained, None, None, None, options).notes
    assert any("in all, with" in note for note in notes), "no text at hand, and an estimate"
    assert run_here(space, study, objectives=objectives).failures == 0
    read = Study.read(study)
    scores = [row for row in read.scores().to_pylist() if row["task"] == "near"]
    assert {(s["suite"], s["protocol"], s["version"], s["n"]) for s in scores} == {
        ("own", "plugin", space.plugins[0].fingerprint, 2)
    }
    assert {(s["split"], s["metric"]) for s in scores} == {
        (split, metric) for split in ("dev", "test") for metric in ("cosine@all", "accuracy")
    }
    values = {s["trial_id"]: s["value"] for s in scores if s["split"] == "dev"}
    for row in rows(study):
        assert row["objective_name"] == "near:cosine@all:dev" and 0 < row["objective"] <= 100
        assert row["objective_2_name"] == "near:accuracy:dev:plugin"
        assert row["trial_id"] in values and row["objective_2"] == 100
    assert "near.dev.cosine@all" in set(read.curves()["metric"].to_pylist())
    EXTENSIONS.clear()  # from here on, nobody has the plugin
    page = tmp_path / "page.html"
    for command in (["show", str(study)], ["report", str(study), "--out", str(page)]):
        done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
        assert done.exit_code == 0 and "Traceback" not in done.output, done.output
    assert "near:cosine@all:dev" in page.read_text()


def test_the_task_changes_an_id_only_if_it_selects_the_weights(tmp_path: Path) -> None:
    def ids(folder: str, *given: Any, **options: Any) -> set[str]:
        (tmp_path / folder).mkdir()
        run_here(near_space(tmp_path / folder, *given), tmp_path / folder / "study", **options)
        return {row["trial_id"] for row in rows(tmp_path / folder / "study")}

    assert ids("without", "") == ids("with")
    named: dict[str, Any] = {"objectives": ("near:cosine@all",)}
    codes = (TASK, TASK.replace("a man eats", "a woman eats"))
    first, other = (
        ids(f"best{number}", '"plugin:near"', code, "best", **named)
        for number, code in enumerate(codes)
    )
    assert not first & other


def test_a_study_refuses_changed_code_under_the_same_name(tmp_path: Path) -> None:
    study, other = tmp_path / "study", TASK.replace("a man eats", "a woman eats")
    run_here(near_space(tmp_path), study)
    with pytest.raises(StudyError, match=r"its code or data have changed\. Restore that"):
        run_here(near_space(tmp_path, code=other), study)
    EXTENSIONS.clear()
    text = SPACE.replace('plugins = ["near.py"]', "").format(own='"plugin:near"', select="last")
    (tmp_path / "near.toml").write_text(text)
    with pytest.raises(DataError, match=r"plugin:near: no loaded plugin defines this task. Load"):
        run_here(load_space(tmp_path / "near.toml"), study)


def by_letters(texts: list[str]) -> Any:
    """The counts of eight letters."""
    return np.array([[1.0, *(text.count(c) for c in "aeionrst")] for text in texts], np.float32)


RULE = "must return a dict with a number from 0 to 1 for cosine@all and accuracy, but returned "
WRONG = {
    "raises": ("    return TEXTS['none']", "raises KeyError ('none'): line 12."),
    "exits": ("    exit(3)", "raises SystemExit (3): line 12."),
    "in a call": ("    encode(3)", "raises TypeError ('int' object is not iterable): line "),
    "a number": ("    return 0.5", f"{RULE}0.5: line 10."),
    "a metric": ("    return {'accuracy': 1}", f"{RULE}{{'accuracy': 1}}: line 10."),
    "nan": (
        "    return {'cosine@all': float('nan'), 'accuracy': 0}",
        f"{RULE}{{'cosine@all': nan, ",
    ),
    "a percentage": ("    return {'cosine@all': 55, 'accuracy': 0}", RULE),
    "a text": ("    return {'cosine@all': '1', 'accuracy': 0}", RULE),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_task_that_fails_is_one_sentence_and_stops_no_other(tmp_path: Path, case: str) -> None:
    body, said = WRONG[case]
    head = TASK.partition("    left, right")[0]
    (tmp_path / "near.py").write_text(f"{head}{body}\n")
    load_plugins([tmp_path / "near.py"])
    measures = Measures(("sts",), ("cosine",), own=("plugin:near",))
    found = evaluate(by_letters, "toy", measures)
    assert len(found.errors) == 2
    assert str(found.errors[0]).startswith("near.py: task near: dev: ")
    assert said in str(found.errors[0])
    failed = [score for score in found.scores if score.value is None]
    assert {(score.task, score.version) for score in failed} == {
        ("near", EXTENSIONS["task", "near"].fingerprint)
    }
    assert any(score.task == "STS-B" and score.value is not None for score in found.scores)


def test_a_task_that_fails_fails_no_trial_that_it_does_not_compare(tmp_path: Path) -> None:
    body = f"{TASK.partition('    left, right')[0]}    raise OSError('gone')\n"
    assert run_here(near_space(tmp_path, code=body), tmp_path / "study").failures == 0
    for row in rows(tmp_path / "study"):
        assert "task near: dev: raises OSError (gone): line 12" in row["notes"]
        assert row["objective_name"] == "STS-B:spearman:dev"
    named = {"objectives": ("near:cosine@all",)}
    assert run_here(near_space(tmp_path, code=body), tmp_path / "compared", **named).failures == 2
    for row in rows(tmp_path / "compared"):
        assert row["error_type"] == "PluginError" and "\n" not in row["error_text"]


def test_the_commands_without_a_study_take_a_task(tmp_path: Path) -> None:
    (tmp_path / "near.py").write_text(TASK)
    given = ["--plugin", str(tmp_path / "near.py"), "--own", "plugin:near"]
    command = ["evaluate", "toy", "--suite", "none", *given]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 0 and "cosine@all" in done.stdout, done.output
    more = {"evaluation.own": ["n=plugin:near"], "evaluation.suites": []}
    config = {"method.name": "scl", "encoder.checkpoint": "toy", "data.source": "toy", **more}
    plugins = [tmp_path / "near.py"]
    assert {s["task"] for s in train_one(config, study=None, data=None, plugins=plugins)} == {"n"}
