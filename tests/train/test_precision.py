"""What a training computes in, and that trying leaves nothing behind."""

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from model_samples import toy_rows
from torch import nn

from tune_sentcl.config import Precision, parse_dotted
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.device import Arithmetic, deterministic, is_out_of_memory, tensor_cores
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.train import precision
from tune_sentcl.train.precision import arithmetic, computing_in


def _method(name: str, **values: Any) -> AnyMethod:
    config = parse_dotted(
        {"method.name": name, "encoder.checkpoint": "toy", "data.source": "toy", **values}, "test"
    )
    encoder = Encoder(*build_toy(), "mean", 32)
    inputs = MethodInputs(config.encoder, torch.Generator().manual_seed(0))
    return build_method(config, encoder, inputs)


def _step(method: AnyMethod) -> Callable[[], Any]:
    sentences = toy_rows(8).texts("premise")
    tokens = method.encoder.tokenize(sentences)
    heads = [module for module in method.heads.modules() if isinstance(module, nn.BatchNorm1d)]

    def step() -> None:
        found = method.encoder(tokens)
        for head in heads:
            head(found[:, : head.num_features])
        found.sum().backward()

    return step


def _batch(rows: int) -> Batch:
    return Batch(toy_rows(rows), np.arange(rows))


def _encoder(method: AnyMethod) -> Encoder:
    assert isinstance(method.encoder, Encoder)
    return method.encoder


def test_a_cpu_knows_two() -> None:
    method, timed = _method("scl"), lambda: pytest.fail("timed on a CPU")
    expected: dict[Precision, str] = {
        "fp32": "fp32",
        "tf32": "fp32",
        "bf16": "bf16",
        "auto": "fp32",
    }
    assert {asked: arithmetic(asked, method, _batch(8), timed) for asked in expected} == expected


def test_timing_leaves_all_as_it_was() -> None:
    """Weights, gradients, chance, and the statistics of batch normalization."""
    method = _method("conisi", **{"method.batch_norm": "separate", "method.strategy": "o1"})
    encoder = _encoder(method)
    encoder.train()
    method.heads.train()
    before = copy.deepcopy([part.state_dict() for part in (encoder, method.heads)])
    first = next(encoder.parameters())
    first.grad = torch.ones_like(first)
    random = torch.get_rng_state()
    assert precision._fastest(method, encoder, _step(method)) in ("fp32", "tf32", "bf16")
    assert torch.equal(torch.get_rng_state(), random)
    assert first.grad is not None and torch.equal(first.grad, torch.ones_like(first))
    assert all(weight.grad is None for weight in list(encoder.parameters())[1:])
    for state, part in zip(before, (encoder, method.heads), strict=True):
        now = part.state_dict()
        assert all(torch.equal(value, now[name]) for name, value in state.items())
    assert encoder.arithmetic == "fp32"


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"fp32": 1.0, "tf32": 1.1, "bf16": 1.1}, "fp32"),
        ({"fp32": 1.0, "tf32": 0.9, "bf16": 0.9}, "tf32"),
        ({"fp32": 1.0, "tf32": 0.99, "bf16": 0.98}, "bf16"),
        ({"fp32": float("inf"), "tf32": float("inf"), "bf16": 3.0}, "bf16"),
    ],
)
def test_the_fastest_is_chosen_and_of_equals_that_of_more_digits(
    seconds: dict[Arithmetic, float], chosen: Arithmetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = _method("scl")
    encoder = _encoder(method)
    monkeypatch.setattr(precision, "_timed", lambda *_: seconds[encoder.arithmetic])
    assert precision._fastest(method, encoder, lambda: None) == chosen


def test_a_step_without_memory_takes_for_ever() -> None:
    encoder = _encoder(_method("scl"))

    def full() -> None:
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")

    def broken() -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    assert precision._timed(encoder, full) == float("inf")
    with pytest.raises(RuntimeError, match="mat1"):
        precision._timed(encoder, broken)


def test_graphs_that_do_not_fit_are_no_batch_that_does_not_fit() -> None:
    """Else the choice would fall on bf16, and the training would then launch."""
    encoder = _encoder(_method("scl"))

    class Graphs:
        def __call__(self, *_: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory.")

        def release(self) -> None:
            """Nothing is held."""

    encoder.runner = Graphs()
    encoder.train()
    tokens = encoder.tokenize(toy_rows(8).texts("premise"))
    assert precision._timed(encoder, lambda: encoder(tokens).sum().backward()) < float("inf")
    assert encoder.runner is None


def test_one_timing_serves_all_trials_of_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of a fixed small batch, on which the launches hide what bf16 gains."""
    gpu = torch.device("cuda")
    monkeypatch.setattr(Encoder, "device", gpu)
    monkeypatch.setattr(precision, "_chosen", {})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    timed: list[Any] = []

    def fastest(method: AnyMethod, encoder: Encoder, step: Callable[[], Any]) -> Arithmetic:
        timed.append(step)
        return "bf16"

    monkeypatch.setattr(precision, "_fastest", fastest)
    kept, steps = [], []
    shapes = (("scl", 64, 32), ("scl", 128, 32), ("scl", 64, 8), ("simcse", 64, 32))
    for name, rows, length in (shapes[0], *shapes):
        method = _method(name)
        method.encoder.train_length = length
        monkeypatch.setattr(type(method), "device", gpu)
        steps.append(_step(method))
        assert arithmetic("auto", method, _batch(rows), steps[-1]) == "bf16"
        assert arithmetic("tf32", method, _batch(rows), steps[-1]) == "tf32"
        kept.append(weakref.ref(_encoder(method)))
        del method
    assert timed == [steps[0], *steps[2:]]
    with deterministic(wanted=True):
        assert arithmetic("auto", _method("scl"), _batch(64), steps[0]) == "fp32"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    kinds: tuple[Precision, ...] = ("auto", "tf32", "bf16")
    old = [arithmetic(asked, _method("scl"), _batch(64), steps[0]) for asked in kinds]
    assert old == ["fp32", "fp32", "bf16"]
    timed.clear()
    steps.clear()
    gc.collect()
    assert [one() for one in kept] == [None] * 5


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


def test_other_devices_keep_their_precision() -> None:
    before = torch.get_float32_matmul_precision()
    with tensor_cores(torch.device("cpu"), allowed=True):
        assert torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
def test_a_gpu_times_all_three_and_rounds_within_and_not_behind() -> None:
    method = _method("scl")
    method.encoder.cuda().train()
    method.heads.cuda()
    assert arithmetic("auto", method, _batch(8), _step(method)) in ("fp32", "tf32", "bf16")
    for kind, inside in (("tf32", "high"), ("fp32", "highest"), ("bf16", "highest")):
        with computing_in(method, kind):  # type: ignore[arg-type]
            assert torch.get_float32_matmul_precision() == inside
        assert torch.get_float32_matmul_precision() == "highest"
