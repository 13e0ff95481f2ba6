"""docs/python.md: its examples run, and it lists every public name and option."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import tune_sentcl
from tune_sentcl import SearchOptions

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


def first_cells(title: str) -> set[str]:
    """The names in the first column of the table below a line that contains `title`."""
    lines = PAGE[PAGE.index(title) :].partition("\n\n|")[2].partition("\n\n")[0].splitlines()[2:]
    return {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_the_page_lists_every_public_name() -> None:
    assert first_cells("all public names") == set(tune_sentcl.__all__)


def test_the_page_lists_every_option() -> None:
    assert {option.name for option in fields(SearchOptions)} <= first_cells("## Options")


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
