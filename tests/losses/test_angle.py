"""The AnglE loss against complex numbers, in loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses.angle import angle, angle_similarity


def slow_similarity(u: np.ndarray, v: np.ndarray) -> float:
    """By complex numbers, one after the other."""
    if len(u) % 2:
        u, v = np.append(u, 0.0), np.append(v, 0.0)
    half = len(u) // 2
    lengths = math.hypot(*u) * math.hypot(*v)
    total = 0j
    for k in range(half):
        total += complex(u[k], u[half + k]) * complex(v[k], v[half + k]).conjugate()
    return abs(total.real + total.imag) / lengths


def slow(left: np.ndarray, right: np.ndarray, scores: np.ndarray, tau: float) -> float:
    near = [slow_similarity(u, v) for u, v in zip(left, right, strict=True)]
    total = 1.0
    for i, above in enumerate(scores):
        for j, below in enumerate(scores):
            if above > below:
                total += math.exp((near[j] - near[i]) / tau)
    return math.log(total)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    rows, width = draw(st.integers(1, 8)), draw(st.integers(1, 7))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    left, right = generator.normal(size=(2, rows, width))
    scores = generator.integers(0, 4, rows).astype(float)
    return left, right, scores, draw(st.floats(0.02, 2.0))


@given(pairs())
def test_equals_the_formula_in_complex_numbers(
    batch: tuple[np.ndarray, np.ndarray, np.ndarray, float],
) -> None:
    left, right, scores, tau = batch
    fast = angle(*map(torch.from_numpy, (left, right, scores)), temperature=tau)
    assert fast.item() == pytest.approx(slow(left, right, scores, tau), rel=1e-9, abs=1e-9)


def test_it_has_a_slope_where_a_cosine_has_none() -> None:
    left = torch.tensor([[1.0, 0.0, 0.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(angle_similarity(left, left.detach().clone()).sum(), left)
    assert float(slope.norm()) == pytest.approx(1.0)


def test_a_temperature_that_is_not_above_0_is_refused() -> None:
    ones = torch.ones(2, 2)
    with pytest.raises(ValueError, match="temperature > 0 must hold"):
        angle(ones, ones, torch.tensor([0.0, 1.0]), temperature=0.0)
