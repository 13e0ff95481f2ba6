"""ConIsI's interactive loss against its equation."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses import interactive

Scores = tuple[np.ndarray, np.ndarray]


@st.composite
def scores(draw: st.DrawFn) -> Scores:
    rows, width = draw(st.integers(1, 6)), draw(st.sampled_from((1, 1, 2, 5)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    doubled, composed = generator.normal(scale=draw(st.floats(0.1, 20)), size=(2, rows, width))
    return doubled, composed


def fast_loss(doubled: np.ndarray, composed: np.ndarray) -> torch.Tensor:
    return interactive(torch.from_numpy(doubled), torch.from_numpy(composed))


@given(scores())
def test_equals_the_equation_in_loops(pair: Scores) -> None:
    expected = []
    for doubled, composed in zip(*pair, strict=True):
        losses = []
        for y, z in zip(doubled.tolist(), composed.tolist(), strict=True):
            losses.append(-math.log(math.exp(y) / (math.exp(y) + math.exp(z))))
        expected.append(sum(losses) / len(losses))
    np.testing.assert_allclose(fast_loss(*pair), expected, rtol=1e-9, atol=1e-9)


def test_scores_far_apart_stay_finite() -> None:
    far = torch.tensor([[1e4], [-1e4]])
    assert interactive(far, -far).tolist() == [0.0, 2e4]
