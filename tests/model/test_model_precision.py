"""Which precision is taken, and that trying both leaves nothing behind."""

import copy
import gc
import weakref

import pytest
import torch

from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.device import tensor_cores
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.precision import trains_in_bf16


def test_a_named_precision_is_taken_as_it_is() -> None:
    encoder = Encoder(*build_toy(), "mean", 64)
    assert trains_in_bf16("bf16", encoder)
    assert not trains_in_bf16("fp32", encoder)


@pytest.mark.parametrize("training", [False, True])
def test_trying_both_leaves_the_encoder_and_all_chance_as_they_were(training: bool) -> None:
    encoder = Encoder(*build_toy(), "mean", 64).train(training)
    weights = copy.deepcopy(encoder.state_dict())
    first = next(encoder.parameters())
    first.grad = torch.ones_like(first)
    random = torch.get_rng_state()
    found = trains_in_bf16("auto", encoder)
    assert isinstance(found, bool)
    assert torch.equal(torch.get_rng_state(), random)
    assert first.grad is not None and torch.equal(first.grad, torch.ones_like(first))
    assert all(weight.grad is None for weight in list(encoder.parameters())[1:])
    assert all(torch.equal(weights[name], now) for name, now in encoder.state_dict().items())
    assert encoder.training is training
    assert not encoder.trains_in_bf16
    assert trains_in_bf16("auto", encoder) is found


def test_no_encoder_is_kept_for_having_been_tried() -> None:
    encoder = Encoder(*build_toy(), "mean", 64)
    trains_in_bf16("auto", encoder)
    kept = weakref.ref(encoder)
    del encoder
    gc.collect()
    assert kept() is None


def test_other_devices_keep_their_precision() -> None:
    before = torch.get_float32_matmul_precision()
    with tensor_cores(torch.device("cpu"), allowed=True):
        assert torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
def test_a_gpu_rounds_within_and_not_behind() -> None:
    with tensor_cores(torch.device("cuda"), allowed=True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"
