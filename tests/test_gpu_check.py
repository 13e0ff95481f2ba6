"""`check --gpu`, by the stand-in for a GPU: what is right passes, and what is wrong is found."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from gpu_stand_in import replay_as_on_a_gpu
from torch import Tensor
from typer.testing import CliRunner

from tune_sentcl import gpu_check
from tune_sentcl.cli import app
from tune_sentcl.gpu_check import Finding, check_gpu
from tune_sentcl.model import packing
from tune_sentcl.train.graphs import GraphedTransformer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    replay_as_on_a_gpu(monkeypatch)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32}
    monkeypatch.setattr(gpu_check, "_SIZES", gpu_check._SIZES | small)
    monkeypatch.setattr(gpu_check, "_MEDIUM", {})
    monkeypatch.setattr(gpu_check, "_EPOCHS", 1)
    ends = {"communicate.return_value": (json.dumps({"without": "none", "free": 1}), "")}
    process = Mock(returncode=0, **ends)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)


def failed(*parts: str) -> list[str]:
    """The checks of some parts that fail."""
    chosen = {part: means for part, means in gpu_check._PARTS.items() if part.__name__ in parts}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_check, "_PARTS", chosen)
        findings = list(check_gpu(CPU))
    assert all(finding.means for finding in findings if finding.passed is False)
    return [finding.check for finding in findings if finding.passed is False]


@pytest.mark.long
def test_what_computes_as_launches_do_passes() -> None:
    assert failed(*(part.__name__ for part in gpu_check._PARTS)) == []


def test_attention_that_sees_other_inputs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel: Any = packing._KERNEL

    def wrong(query: Tensor, key: Tensor, *given: Any, **more: Any) -> Any:
        return kernel(query, key.roll(1, dims=1), *given, **more)

    monkeypatch.setattr(packing, "_KERNEL", wrong)
    assert failed("_operations") == ["attention of packed inputs"]


def test_graphs_that_are_not_used_and_noise_that_repeats_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_check, "_KINDS", gpu_check._KINDS[:1])
    with monkeypatch.context() as patch:
        patch.setattr(GraphedTransformer, "_is_right", lambda *_: False)
        assert failed("_encoders") == ["bert, mean, fp32"]
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda states, *_, **__: states)
    assert "each replay draws new dropout" in failed("_noise")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"without": "", "free": 4}, []),
        ({"without": "", "free": 1}, 2 * ["a shared GPU by MPS"]),
        (None, ["a shared GPU by MPS"]),  # which tells nothing of this process's own GPU
    ],
)
def test_a_share_of_memory_is_what_was_asked_for(
    end: Any, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of a quarter would be a sixteenth."""
    process = Mock(returncode=end is None)
    process.communicate.return_value = (json.dumps(end), "a line\nCUDA error")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    card = Mock(total_memory=16)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    assert failed("_mps") == expected
    assert process.kill.called


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_the_command_prints_a_table_and_exits_with_1_on_a_fail(
    passed: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def findings(device: torch.device) -> Iterator[Finding]:
        yield Finding("device", None, "a card")
        yield Finding("noise", passed, "0 apart", "do this")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu_check, "check_gpu", findings)
    done = CliRunner().invoke(app, ["check", "--gpu"])
    assert done.exit_code == code
    assert ("PASS" in done.stdout) == passed and ("do this" in done.stdout) != passed


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--gpu"], 1, "finds no CUDA device here, so nothing was checked"),
        (["--gpu", "smoke"], 2, "either SPACE or --gpu must be given"),
        ([], 2, "either SPACE or --gpu must be given"),
    ],
)
def test_what_the_command_refuses(
    words: list[str], code: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = CliRunner().invoke(app, ["check", *words])
    assert done.exit_code == code
    assert text in done.stderr
