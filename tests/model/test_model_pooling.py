"""Pooling against loops, the laws of padding, and the pair classifier against torch's own."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tune_sentcl.config import Pooling
from tune_sentcl.model.modules import ClassifierActivation, PairClassifier
from tune_sentcl.model.pooling import padded_count, pool
from tune_sentcl.shapes import Mask, TokenStates

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)[:-1]  # without `modules`
TWO_LAYERS: tuple[Pooling, ...] = ("first_last", "static_last")
lengths = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def _states(sizes: list[int], seed: int, extra: int = 0) -> tuple[TokenStates, TokenStates, Mask]:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(sizes), max(sizes) + extra, 3)
    last = torch.randn(shape, generator=generator, dtype=torch.float64)
    first = torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[int(t < n) for t in range(shape[1])] for n in sizes])
    return last, first, mask


def _slow(
    last: list[list[float]], first: list[list[float]], pooling: Pooling, divisor: int | None
) -> list[float]:
    if pooling in ("cls", "last"):
        return last[0 if pooling == "cls" else -1]
    skipped = int(pooling == "mean_without_cls")
    count = (len(last) if divisor is None else divisor) - skipped
    sums = [0.0, 0.0, 0.0]
    for early, late in list(zip(first, last, strict=True))[skipped:]:
        for axis in range(3):
            two = pooling in TWO_LAYERS
            sums[axis] += (early[axis] + late[axis]) / 2 if two else late[axis]
    return [value / max(count, 1) for value in sums]


@pytest.mark.parametrize("pooling", POOLINGS)
@given(sizes=lengths, seed=st.integers(0, 99), divided=st.sampled_from(["none", "one", "own"]))
@settings(deadline=None, max_examples=40)
def test_equals_the_loop(pooling: Pooling, sizes: list[int], seed: int, divided: str) -> None:
    last, first, mask = _states(sizes, seed)
    own = np.arange(7, 7 + len(sizes))  # a divisor a sentence
    divisor = {"none": None, "one": max(sizes), "own": own}[divided]
    pooled = pool(last, mask, pooling, divisor, first)
    for row, size in enumerate(sizes):
        by = {"none": None, "one": max(sizes), "own": 7 + row}[divided]
        expected = _slow(last[row, :size].tolist(), first[row, :size].tolist(), pooling, by)
        assert pooled[row].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("divisor", [None, 9])
@pytest.mark.parametrize("filler", [1e9, math.nan])
def test_padding_changes_nothing(pooling: Pooling, divisor: int | None, filler: float) -> None:
    last, first, mask = _states([4, 1, 6], seed=0, extra=5)
    last[mask == 0] = filler
    first[mask == 0] = filler
    padded = pool(last.requires_grad_(), mask, pooling, divisor, first)
    (gradient,) = torch.autograd.grad(padded.sum(), last)
    assert not gradient[mask == 0].any()
    cut = pool(last[:, :6], mask[:, :6], pooling, divisor, first[:, :6])
    torch.testing.assert_close(padded, cut, rtol=0, atol=1e-12)
    assert padded.isfinite().all()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padded_count_is_what_pool_divides_by(pooling: Pooling) -> None:
    last, first, mask = _states([4, 4], seed=2)
    by_five, by_nine = (pool(last, mask, pooling, length, first) for length in (5, 9))
    ratio = padded_count(pooling, 5) / padded_count(pooling, 9)
    torch.testing.assert_close(by_nine, by_five * ratio)


def test_a_sentence_without_tokens_is_zero_whatever_its_padding_holds() -> None:
    last, first, _ = _states([3, 3], seed=4)
    last[0] = first[0] = math.nan
    mask = torch.tensor([[0, 0, 0], [1, 1, 0]])
    for pooling in ("mean", "last", *TWO_LAYERS):
        found = pool(last, mask, pooling, None, first)
        assert found[0].tolist() == [0.0, 0.0, 0.0]
        assert found[1].isfinite().all()


@pytest.mark.parametrize("pooling", TWO_LAYERS)
def test_first_last_without_first_is_refused(pooling: Pooling) -> None:
    last, _, mask = _states([2], seed=6)
    with pytest.raises(ValueError, match=f"{pooling} pooling needs the first layer's states"):
        pool(last, mask, pooling)


def test_half_precision_is_summed_in_single() -> None:
    states = torch.full((1, 3000, 1), 0.1, dtype=torch.bfloat16)
    found = pool(states, torch.ones((1, 3000), dtype=torch.long), "mean")
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(states[0, 0].item(), rel=1e-5)


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
def test_a_pair_classifier_is_drawn_as_torch_draws_and_computes_the_formula(
    activation: ClassifierActivation,
) -> None:
    torch.manual_seed(5)
    between = {"none": nn.Identity(), "relu": nn.ReLU(), "tanh": nn.Tanh()}[activation]
    expected = nn.Sequential(nn.Linear(12, 7), between, nn.Linear(7, 3))
    before = torch.get_rng_state()
    head = PairClassifier(4, 7, activation, torch.Generator().manual_seed(5))
    assert torch.equal(before, torch.get_rng_state())
    u, v = torch.randn(6, 4), torch.randn(6, 4)
    assert torch.equal(head(u, v), expected(torch.cat([u, v, (u - v).abs()], dim=1)))
