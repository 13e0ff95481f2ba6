"""Sources of rows in a user's own files: the same trials as from a file, and what is refused."""

import json
from pathlib import Path

import pytest
from plugin_samples import MARGIN, TASK, WATCHER, registry, written
from search_samples import numbers, rows, run_here
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import BadInputError, DataError
from tune_sentcl.export.choice import Choice
from tune_sentcl.objective import DEFAULT
from tune_sentcl.plugins import EXTENSIONS, load_plugins
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.study import Study

__all__ = ["registry"]

ROWS = [
    {"anchor": f"question {n}", "positive": [f"answer {n}", f"reply {n}"], "negative_1": f"no {n}"}
    for n in range(8)
]

SOURCE = """import tune_sentcl


@tune_sentcl.source("faq")
def faq():
    {body}
"""

SPACE = """name = "faq"
[fixed]
method.name = "mnr"
encoder.checkpoint = "toy"
data.source = {source}
evaluation.data = "toy"
optimizer.lr = 1e-3
optimizer.batch_size = 4
[[block]]
"""


def faq_space(folder: Path, body: str = f"yield from {ROWS}", source: object = "faq") -> Space:
    (folder / "faq.py").write_text(SOURCE.format(body=body))
    (folder / "faq.toml").write_text(SPACE.format(source=json.dumps(source)))
    return load_space(folder / "faq.toml", plugins=[folder / "faq.py"])


def test_rows_of_a_source_make_the_trials_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    assert run_here(faq_space(tmp_path), tmp_path / "own").failures == 0
    assert run_here(faq_space(tmp_path, source=str(file)), tmp_path / "file").failures == 0
    assert numbers(tmp_path / "own") == numbers(tmp_path / "file")
    (own,), (read,) = rows(tmp_path / "own"), rows(tmp_path / "file")
    assert own["trial_id"] == read["trial_id"] and own["data_source"] == "faq.py: faq"
    other = f"yield from {[*ROWS[1:], {**ROWS[0], 'anchor': 'another'}]}"
    assert run_here(faq_space(tmp_path, other), tmp_path / "own").ran == 1
    both = faq_space(tmp_path, source=["faq", str(file)])
    assert run_here(both, tmp_path / "both").failures == 0
    EXTENSIONS.clear()
    (tmp_path / "faq.toml").write_text(SPACE.format(source='"faq"'))
    with pytest.raises(
        DataError, match=r"faq: must be a known source .*Name a source, or load its p"
    ):
        run_here(load_space(tmp_path / "faq.toml"), tmp_path / "own")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "yield 3 / 0",
            "raises ZeroDivisionError (division by zero): line 6. Correct the plugin in that "
            "line.",
        ),
        ("yield 'a text'", "must yield at least one dict, and nothing but dicts: line 4."),
        ("return []", "must yield at least one dict, and nothing but dicts: line 4."),
        ("return 3", "raises TypeError ('int' object is not iterable): line 4."),
        (
            "yield from [{'anchor': 'a', 'positive': 'b'}, {'anchor': 3, 'positive': 'b'}]",
            "must yield values of one type in each column (",
        ),
        ("yield {'question': 'a'}", "faq.py: faq: "),
        ("yield {'anchor': 'a', 'positive': 3}", "faq.py: faq: positive"),
        ("yield {'sentence1': 'a', 'sentence2': 'b', 'score': float('nan')}", "faq.py: faq row 1"),
    ],
)
def test_a_bad_source_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, body: str, said: str
) -> None:
    space = faq_space(tmp_path, body)
    with pytest.raises(BadInputError) as refused:
        run_here(space, tmp_path / "study")
    assert str(refused.value).startswith("faq.py: ") and said in str(refused.value)
    assert "\n" not in str(refused.value) and not (tmp_path / "study").exists()


def test_columns_may_be_renamed(tmp_path: Path) -> None:
    space = faq_space(tmp_path, "yield {'q': 'a question', 'a': 'an answer'}")
    named = space.with_overrides({"data.columns": {"anchor": "q", "positive": "a"}})
    assert run_here(named, tmp_path / "study").failures == 0
    assert load_plugins([tmp_path / "faq.py"])[0] == space.plugins[0]


def test_the_command_that_trains_again_names_the_plugins_that_the_trial_uses(
    tmp_path: Path,
) -> None:
    written(tmp_path, MARGIN)
    for name, code in (("near.py", TASK), ("lines.py", WATCHER)):
        (tmp_path / name).write_text(code)
    faq_space(tmp_path)
    plugins = [tmp_path / name for name in ("lines.py", "near.py", "faq.py", "my_loss.py")]
    values = {"method.name": "margin_cosine", "evaluation.own": ["n=plugin:near"]}
    space = load_space(tmp_path / "faq.toml", values, plugins)
    assert run_here(space, tmp_path / "study").failures == 0
    EXTENSIONS.clear()
    (row,) = rows(tmp_path / "study")
    command = Choice.read(Study.read(tmp_path / "study"), DEFAULT).command(row)
    assert command is not None
    assert "--plugin my_loss.py --plugin faq.py --plugin near.py --set" in command
    assert "lines.py" not in command


def test_data_check_reads_a_plugins_rows_and_task(tmp_path: Path) -> None:
    faq_space(tmp_path, f"yield from {[*ROWS, ROWS[0]]}")
    (tmp_path / "near.py").write_text(TASK)
    given = ["--rows", "faq", "--own", "plugin:near", "--json"]
    plugins = [f"--plugin={tmp_path / name}" for name in ("faq.py", "near.py")]
    done = CliRunner().invoke(app, ["data", "check", *plugins, *given])
    assert done.exit_code == 0, done.output
    *near, faq = json.loads(done.stdout)
    assert {each["name"] for each in near} == {"near"}
    assert (faq["name"], faq["rows"]) == ("faq", 18)
    assert "rows that repeat an earlier row: 2" in faq["problem"]
