"""What a training and an evaluation compute in."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_samples import toy_rows

from tune_sentcl.arithmetic import Arithmetic, tensor_cores
from tune_sentcl.config import Precision, parse_dotted
from tune_sentcl.errors import ConfigError
from tune_sentcl.evaluate import Measures, evaluate
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.device import deterministic, is_out_of_memory
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.train import train
from tune_sentcl.train.precision import arithmetic


def _method(name: str, **values: Any) -> AnyMethod:
    config = parse_dotted(
        {"method.name": name, "encoder.checkpoint": "toy", "data.source": "toy", **values}, "test"
    )
    encoder = Encoder(*build_toy(), "mean", 32)
    inputs = MethodInputs(config.encoder, torch.Generator().manual_seed(0))
    return build_method(config, encoder, inputs)


GPUS: list[tuple[str, Precision, Arithmetic]] = [
    *(("cpu", asked, "fp32") for asked in ("fp32", "tf32", "auto")),
    ("cpu", "bf16", "bf16"),
    *(("7.5", asked, "fp32") for asked in ("fp32", "tf32", "auto")),
    *((card, asked, asked) for card in ("8.0", "12.0") for asked in ("fp32", "tf32", "bf16")),
    *((card, "auto", "bf16") for card in ("8.0", "12.0")),
]


def _put_on(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have encoders lie on a GPU of some compute capability, unless it is a CPU."""
    if card != "cpu":
        major, minor = map(int, card.split("."))
        monkeypatch.setattr(Encoder, "device", torch.device("cuda"))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (major, minor))


@pytest.mark.parametrize(("card", "asked", "expected"), GPUS)
def test_a_rule_decides_the_arithmetic(
    card: str, asked: Precision, expected: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a trial's values and its device, also with deterministic algorithms."""
    _put_on(card, monkeypatch)
    for wanted in (False, True):
        with deterministic(wanted=wanted):
            assert arithmetic(asked, _method("scl"), resumed=False) == expected


@pytest.mark.parametrize(
    ("card", "begun", "expected"),
    [
        ("8.0", "fp32", "fp32"),
        ("8.0", "tf32", "tf32"),
        ("cpu", "bf16", "bf16"),
        ("7.5", "bf16", "bf16"),
        ("7.5", "tf32", "fp32"),
    ],
)
def test_a_resumed_training_keeps_its_arithmetic(
    card: str, begun: Arithmetic, expected: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its device has it, whatever `auto` is there."""
    _put_on(card, monkeypatch)
    method = _method("scl")
    assert isinstance(method.encoder, Encoder)
    method.encoder.arithmetic = begun
    assert arithmetic("auto", method, resumed=True) == expected


def test_bf16_that_a_gpu_lacks_is_refused_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch would compute it by slow kernels."""
    config = parse_dotted(
        {
            "method.name": "scl",
            "encoder.checkpoint": "toy",
            "data.source": "toy",
            "optimizer.precision": "bf16",
        },
        "test",
    )
    method = _method("scl")
    _put_on("7.5", monkeypatch)
    with pytest.raises(ConfigError, match=r"capability 8\.0 or more, but this GPU has 7\.5"):
        next(train(method, toy_rows(64), config))


def _inside(*, allowed: bool, before: str) -> str:
    try:
        torch.set_float32_matmul_precision(before)
        with tensor_cores(torch.device("cuda"), allowed=allowed):
            inside = torch.get_float32_matmul_precision()
        assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision("highest")
    return inside


@pytest.mark.parametrize("before", ["highest", "high"])
def test_fp32_is_fp32_where_the_process_allows_tf32(before: str) -> None:
    """As NVIDIA's containers do, by a variable that torch reads at its start."""
    assert _inside(allowed=False, before=before) == "highest"
    assert _inside(allowed=True, before=before) == "high"


def test_an_evaluation_computes_in_full_precision() -> None:
    """Whatever the process allows, and wherever classifiers are trained."""
    torch.set_float32_matmul_precision("high")
    try:
        assert _during_an_evaluation(torch.get_float32_matmul_precision) == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


def _during_an_evaluation(setting: Callable[[], str]) -> str:
    seen: list[str] = []

    def encode(*_: Any, **__: Any) -> Any:
        seen.append(setting())
        raise InterruptedError

    with pytest.raises(InterruptedError):
        evaluate(encode, "toy", Measures(("sts",)))
    return seen[0]


def test_full_memory_has_many_names() -> None:
    for text in (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
    ):
        assert is_out_of_memory(RuntimeError(text))
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))
    assert not is_out_of_memory(ValueError("CUBLAS_STATUS_ALLOC_FAILED"))
