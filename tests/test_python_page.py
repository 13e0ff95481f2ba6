"""docs/python.md: its examples run, and it lists every public name and option."""

import os
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import tune_sentcl
from tune_sentcl import SearchOptions

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def first_cells(title: str) -> set[str]:
    """The names in the first column of the table below a line that contains `title`."""
    lines = PAGE[PAGE.index(title) :].partition("\n\n|")[2].partition("\n\n")[0].splitlines()[2:]
    return {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_the_page_lists_every_public_name() -> None:
    assert first_cells("all public names") == set(tune_sentcl.__all__)


def test_the_page_lists_every_option() -> None:
    assert {option.name for option in fields(SearchOptions)} <= first_cells("## Options")


@pytest.mark.long
def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(compile(code, "python.md", "exec"), names)
    assert "SearchOptions.samples: -1" in capsys.readouterr().out
    assert {"grid", "sampler", "confirm"} == set(names["study"].trials["origin"])
    measured = tune_sentcl.read_study("studies/python").scores
    assert {"sts", "transfer"} <= set(measured["suite"])


@pytest.mark.long
def test_the_notebook_runs_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Finds output that only a terminal takes, and a figure under another name.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    text = (ROOT / "docs/examples/first_search.ipynb").read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    done = NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}).execute()
    _, table, picture = (cell.outputs[-1]["data"] for cell in done.cells)
    assert "objective_mean" in table["text/html"] and picture["image/png"]
