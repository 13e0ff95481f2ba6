"""ConIsI's interactive loss against its equation."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

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


@given(scores(), st.floats(-100, 100))
def test_what_both_scores_have_in_common_changes_nothing(pair: Scores, bias: float) -> None:
    doubled, composed = pair
    shifted = fast_loss(doubled + bias, composed + bias)
    np.testing.assert_allclose(shifted, fast_loss(*pair), rtol=0, atol=1e-9)


def test_the_bias_of_the_score_gets_no_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(4, 3)
    hidden = torch.randn(2, 5, 4, generator=generator)
    interactive(layer(hidden[0]), layer(hidden[1])).sum().backward()
    assert layer.bias.grad is not None and layer.weight.grad is not None
    torch.testing.assert_close(layer.bias.grad, torch.zeros(3), rtol=0, atol=1e-6)
    assert layer.weight.grad.abs().max() > 0.01


@given(scores(), st.integers(0, 1000))
def test_permuting_the_batch_permutes_the_losses(pair: Scores, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(pair[0]))
    permuted = fast_loss(pair[0][order], pair[1][order])
    assert torch.equal(permuted, fast_loss(*pair)[torch.from_numpy(order)])


@given(scores())
def test_equal_scores_give_log_2(pair: Scores) -> None:
    np.testing.assert_allclose(fast_loss(pair[0], pair[0]), math.log(2), atol=1e-12)


def test_scores_far_apart_stay_finite() -> None:
    far = torch.tensor([[1e4], [-1e4]])
    assert interactive(far, -far).tolist() == [0.0, 2e4]
