"""Every method is whole, and docs/adding-a-paper.md does what it says."""

import inspect
import re
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_samples import graded, toy_encoder, trial_config, whole

from tune_sentcl import methods
from tune_sentcl.config import METHODS, parse_dotted
from tune_sentcl.losses.cosent import cosent
from tune_sentcl.methods import Method, MethodInputs, build_method, method_class
from tune_sentcl.train import loop, train

NAMES = {name: one.config for name, one in METHODS.items() if not one.plugin}


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_found_by_its_name_and_made_for_its_config(name: str) -> None:
    found: typing.Any = method_class(NAMES[name](name=name))
    assert issubclass(found, Method) and not inspect.isabstract(found)
    assert found.__module__ == f"tune_sentcl.methods.{name}"
    assert f"Method `{name}`" in found.__doc__ and found.loss.__doc__
    assert typing.get_args(found.__orig_bases__[0])[0] is NAMES[name]


def test_no_module_holds_a_method_outside_the_union() -> None:
    folder = Path(methods.__file__).parent
    held = {file.stem for file in folder.glob("*.py") if "\nMETHOD = " in file.read_text()}
    assert held == set(NAMES)


PAGE = Path(__file__).parents[2] / "docs" / "adding-a-paper.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What all snippets define, each with nothing but what it imports itself."""
    found: dict[str, Any] = {}
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(snippets) == 4
    for snippet in snippets:
        defined: dict[str, Any] = {}
        exec(compile(snippet, str(PAGE), "exec"), defined)
        if "def cosent" in snippet:  # which later snippets import from the package
            found["loss"] = defined["cosent"]
        found |= defined
    return found


def test_the_loss_and_the_method_are_those_of_the_package(page: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 6, 4, generator=generator)
    scores = torch.arange(6.0)
    ours = page["loss"](left, right, scores, temperature=0.1)
    torch.testing.assert_close(ours, cosent(left, right, scores, temperature=0.1))
    config, batch = trial_config(name="cosent"), whole(graded(8))
    setting = MethodInputs(config.encoder, generator)
    assert page["CosentConfig"](name="cosent").rows == "graded_pairs"
    losses = [
        made.loss(batch, np.random.default_rng(0)).total
        for made in (
            page["METHOD"](config.method, toy_encoder("mean"), setting),
            build_method(config, toy_encoder("mean"), setting),
        )
    ]
    torch.testing.assert_close(losses[1], losses[0], rtol=0, atol=0)


def test_a_model_that_follows_moves_by_the_hook_and_lies_in_the_state(
    page: dict[str, Any],
) -> None:
    common = {"method.name": "cosent", "encoder.checkpoint": "toy", "data.source": "toy"}
    config = parse_dotted({**common, "optimizer.batch_size": 8, "optimizer.lr": 1e-3}, "test")
    setting = MethodInputs(config.encoder, torch.Generator())
    method = page["Followed"](config.method, toy_encoder("mean"), setting)
    corpus = graded(24)
    expected = [weight.detach().clone() for weight in method.heads.parameters()]
    states = []
    for step in train(method, corpus, config):
        for average, weight in zip(expected, method.encoder.parameters(), strict=True):
            average.lerp_(weight.detach(), 0.01)
        states.append(step.state())
    assert len(states) == 3
    for found, average in zip(method.heads.parameters(), expected, strict=True):
        torch.testing.assert_close(found, average, rtol=0, atol=0)
    again = page["Followed"](config.method, toy_encoder("mean"), setting)
    loop._begin(again, config, 3, states[-1])
    for found, average in zip(again.heads.parameters(), expected, strict=True):
        torch.testing.assert_close(found, average, rtol=0, atol=0)
