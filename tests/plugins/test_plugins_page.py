"""docs/plugins.md from its first command to its last."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from local_search import searches_without_ray
from plugin_samples import registry
from typer.testing import CliRunner

from tune_sentcl.analysis import read_study
from tune_sentcl.cli import app

__all__ = ["registry"]

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.S | re.M)
    return str(found)


def test_the_page_trains_and_searches_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    Path("my_loss.py").write_text(block("python"))
    Path("my.toml").write_text(block("toml"))
    commands = re.findall(r"^tune-sentcl (.*)$", PAGE, re.M)
    assert len(commands) == 3
    for command in commands:
        short = command.replace("--trials 4", "--trials 1")
        with searches_without_ray():
            done = CliRunner().invoke(app, shlex.split(short))
        assert done.exit_code == 0, done.output
    trials = read_study("studies/margin").trials
    assert {"margin_cosine", "mnr"} == set(trials["method.name"])
    assert {0.2, 0.4} <= set(trials["method.reach"].dropna())


def test_the_loss_of_the_page_is_a_function_still() -> None:
    found: dict[str, object] = {}
    exec(compile(block("python"), "my_loss.py", "exec"), found)
    function = found["margin_cosine"]
    assert callable(function)
    pairs = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert function(pairs, pairs, reach=0.5) == pytest.approx(0.5)
    assert function(pairs, -pairs, reach=0.5) == pytest.approx((2 * 0.5 + 2 * 1.5) / 2)
