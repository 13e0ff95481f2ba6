"""docs/plugins.md from its first command to its last."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from local_search import searches_without_ray
from plugin_samples import registry
from typer.testing import CliRunner

from tune_sentcl import config
from tune_sentcl.analysis import read_study
from tune_sentcl.cli import app
from tune_sentcl.config import parse_dotted
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.plugins import load_plugins
from tune_sentcl.train import loop, train
from tune_sentcl.trial import InputLoader

__all__ = ["registry"]

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


FILES = {
    "my_loss.py": ("@tune_sentcl.loss(", "python"),
    "my.toml": ("plugins = ", "toml"),
    "followed.py": ("@tune_sentcl.method(", "python"),
    "tickets.py": ("@tune_sentcl.task(", "python"),
    "lines.py": ("@tune_sentcl.watcher(", "python"),
    "faq.py": ("@tune_sentcl.source(", "python"),
}
"""What each file's block holds, and its language."""


def block(name: str) -> str:
    mark, kind = FILES[name]
    found = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.S | re.M)
    (text,) = (text for text in found if mark in text)
    assert f"`{name}`" in PAGE
    return str(text)


def test_the_configs_that_the_page_names_are_exported() -> None:
    named = set(re.findall(r"`([A-Z]\w+Config)`", PAGE))
    assert len(named) == 4 and named <= set(dir(config))


def test_the_commands_of_the_page_run_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in FILES:
        Path(name).write_text(block(name))
    commands = re.findall(r"^tune-sentcl (.*)$", PAGE, re.M)
    assert len(commands) == 8
    printed = ""
    for command in commands:
        short = command.replace("--samples 4", "--samples 1")
        with searches_without_ray():
            done = CliRunner().invoke(app, shlex.split(short))
        assert done.exit_code == 0, done.output
        printed += done.stdout
    trials = read_study("studies/margin").trials
    assert {"margin_cosine", "mnr"} == set(trials["method.name"])
    assert {0.2, 0.4} <= set(trials["method.reach"].dropna())
    scored = read_study("studies/tickets")
    assert set(scored.trials["objective_name"]) == {"tickets:recall@p90:dev"}
    assert set(scored.trials["objective"]) <= {0.0, 50.0, 100.0}
    assert "recall@p90" in printed
    lines = Path("studies/watched/lines.jsonl").read_text().splitlines()
    ends = [line for line in map(json.loads, lines) if "status" in line]
    stored = read_study("studies/watched").trials.set_index("trial_id")["objective"]
    assert {end["trial"]: end["objective"] for end in ends} == stored.to_dict()


def test_the_loss_of_the_page_is_a_function_still() -> None:
    found: dict[str, object] = {}
    exec(compile(block("my_loss.py"), "my_loss.py", "exec"), found)
    function = found["margin_cosine"]
    assert callable(function)
    pairs = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert function(pairs, pairs, reach=0.5) == pytest.approx(0.5)
    assert function(pairs, -pairs, reach=0.5) == pytest.approx((2 * 0.5 + 2 * 1.5) / 2)


def test_the_average_of_the_page_moves_after_each_step_and_lies_in_the_state(
    tmp_path: Path,
) -> None:
    (tmp_path / "followed.py").write_text(block("followed.py"))
    load_plugins([tmp_path / "followed.py"])
    values: dict[str, Any] = {
        "method.name": "followed",
        "encoder.checkpoint": "toy",
        "data.source": "toy",
    }
    values |= {"data.limit": 24, "optimizer.batch_size": 8, "optimizer.lr": 1e-3}
    config = parse_dotted(values, "test")
    read = InputLoader(None).load(config)
    method, again = (
        build_method(
            config,
            load_encoder(read.checkpoint, "mean", 64),
            MethodInputs(config.encoder, torch.Generator()),
        )
        for _ in range(2)
    )
    expected = [weight.detach().clone() for weight in method.heads.parameters()]
    states = []
    for step in train(method, read.corpus, config):
        for average, weight in zip(expected, method.encoder.parameters(), strict=True):
            average.lerp_(weight.detach(), 0.01)
        states.append(step.state())
    assert len(states) == 3
    loop._begin(again, config, 3, states[-1])
    for made in (method, again):
        for found, average in zip(made.heads.parameters(), expected, strict=True):
            torch.testing.assert_close(found, average, rtol=0, atol=0)
