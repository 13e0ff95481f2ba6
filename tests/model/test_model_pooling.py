"""Pooling against loops, and the laws of padding."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tune_sentcl.config import Pooling
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
    rows = last[1:] if pooling == "mean_without_cls" else last
    if pooling in ("first_last", "static_last"):
        rows = [
            [(a + b) / 2 for a, b in zip(x, y, strict=True)]
            for x, y in zip(first, last, strict=True)
        ]
    count = len(rows)
    if divisor is not None:
        count = divisor - 1 if pooling == "mean_without_cls" else divisor
    sums = [0.0, 0.0, 0.0]
    for row in rows:
        for axis, value in enumerate(row):
            sums[axis] += value
    return [value / max(count, 1) for value in sums]


@pytest.mark.parametrize("pooling", POOLINGS)
@given(sizes=lengths, seed=st.integers(0, 99), padded=st.booleans())
@settings(deadline=None, max_examples=40)
def test_equals_the_loop(pooling: Pooling, sizes: list[int], seed: int, padded: bool) -> None:
    last, first, mask = _states(sizes, seed)
    divisor = max(sizes) if padded else None
    found = pool(last, mask, pooling, divisor, first)
    for row, size in enumerate(sizes):
        expected = _slow(last[row, :size].tolist(), first[row, :size].tolist(), pooling, divisor)
        assert found[row].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("divisor", [None, 9])
@pytest.mark.parametrize("filler", [1e9, math.nan])
def test_padding_changes_nothing(pooling: Pooling, divisor: int | None, filler: float) -> None:
    last, first, mask = _states([4, 1, 6], seed=0, extra=5)
    last[mask == 0] = filler
    first[mask == 0] = filler
    padded = pool(last, mask, pooling, divisor, first)
    cut = pool(last[:, :6], mask[:, :6], pooling, divisor, first[:, :6])
    torch.testing.assert_close(padded, cut, rtol=0, atol=1e-12)
    assert padded.isfinite().all()


@pytest.mark.parametrize("pooling", ["mean", "mean_without_cls", "first_last", "static_last"])
def test_a_given_divisor_makes_parts_equal_the_whole(pooling: Pooling) -> None:
    last, first, mask = _states([3, 7, 2, 5], seed=1)
    whole = pool(last, mask, pooling, 7, first)
    for row, size in enumerate([3, 7, 2, 5]):
        rows = slice(row, row + 1)
        part = pool(last[rows, :size], mask[rows, :size], pooling, 7, first[rows, :size])
        torch.testing.assert_close(part, whole[rows], rtol=0, atol=1e-12)


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


def test_sentence_of_nothing_but_cls_is_zero_not_nan() -> None:
    last, _, mask = _states([1, 3], seed=4)
    found = pool(last, mask, "mean_without_cls")
    assert found[0].tolist() == [0.0, 0.0, 0.0]


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


@pytest.mark.parametrize("pooling", POOLINGS)
def test_no_gradient_reaches_padding(pooling: Pooling) -> None:
    last, first, mask = _states([2, 4], seed=7)
    last.requires_grad_()
    pool(last, mask, pooling, None, first).sum().backward()
    assert last.grad is not None
    assert last.grad[mask == 0].abs().sum() == 0


@pytest.mark.parametrize("pooling", POOLINGS)
def test_each_sentence_may_have_a_divisor_of_its_own(pooling: Pooling) -> None:
    last, first, mask = _states([3, 5, 1], 4)
    divisors = np.array([7, 5, 6])
    found = pool(last, mask, pooling, divisors, first)
    for row, divisor in enumerate(divisors.tolist()):
        expected = pool(last, mask, pooling, divisor, first)[row]
        torch.testing.assert_close(found[row], expected)
