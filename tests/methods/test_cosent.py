"""CoSENT: the loss against loops, and the method end to end on toy pairs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses.cosent import cosent


def slow(left: np.ndarray, right: np.ndarray, scores: np.ndarray, tau: float) -> float:
    cosines = [
        sum(a * b for a, b in zip(u, v, strict=True)) / (math.hypot(*u) * math.hypot(*v))
        for u, v in zip(left.tolist(), right.tolist(), strict=True)
    ]
    total = 1.0
    for i, above in enumerate(scores):
        for j, below in enumerate(scores):
            if above > below:
                total += math.exp((cosines[j] - cosines[i]) / tau)
    return math.log(total)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    rows = draw(st.integers(1, 8))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    left, right = generator.normal(size=(2, rows, 4))
    scores = generator.integers(0, 4, rows).astype(float)  # ties are common
    return left, right, scores, draw(st.floats(0.02, 2.0))


@given(pairs())
def test_equals_the_formula_in_loops(
    batch: tuple[np.ndarray, np.ndarray, np.ndarray, float],
) -> None:
    left, right, scores, tau = batch
    fast = cosent(*map(torch.from_numpy, (left, right, scores)), temperature=tau)
    assert fast.item() == pytest.approx(slow(left, right, scores, tau), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("length", [0.0, 1e-12, 1e-6, 1e-3])
def test_short_vectors_have_bounded_gradients(length: float) -> None:
    left = torch.tensor([[1.0, 2.0], [length, 0.0]], requires_grad=True)
    right = torch.tensor([[0.5, 1.0], [0.0, 1.0]])
    cosent(left, right, torch.tensor([0.0, 1.0]), temperature=1.0).backward()
    assert left.grad is not None
    assert float(left.grad.norm()) <= 1e4
