"""The triplet loss against loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses.triplet import Distance, triplet


def slow_distance(u: np.ndarray, v: np.ndarray, distance: Distance) -> float:
    if distance == "euclidean":
        return float(np.sqrt(((u - v) ** 2).sum()))
    return 1 - float(u @ v) / (math.hypot(*u) * math.hypot(*v))


@given(
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 5.0),
    st.sampled_from(("euclidean", "cosine")),
)
def test_equals_the_formula_in_loops(
    rows: int, seed: int, margin: float, distance: Distance
) -> None:
    sides = np.random.default_rng(seed).normal(size=(3, rows, 4))
    fast = triplet(*map(torch.from_numpy, sides), margin=margin, distance=distance)
    slow = [
        max(0.0, slow_distance(a, p, distance) - slow_distance(a, n, distance) + margin)
        for a, p, n in zip(*sides, strict=True)
    ]
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-9)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_equal_sentences_have_a_slope_that_is_a_number(distance: Distance) -> None:
    same = torch.ones(2, 3, requires_grad=True)
    triplet(same, same, torch.zeros(2, 3), margin=5.0, distance=distance).sum().backward()
    assert same.grad is not None
    assert torch.isfinite(same.grad).all()
