"""The loss of CLSR and SimCLR against loops, gradients included, and against SimCLR's own way."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tune_sentcl.losses import nt_xent

Pairs = tuple[np.ndarray, np.ndarray]
TAUS = st.floats(0.02, 5.0)


def slow_loss(left: Tensor, right: Tensor, tau: float) -> Tensor:
    """L_a = -log(exp(cos_aa' / tau) / sum_{i != a} exp(cos_ai / tau)), number by number."""
    both = [*left, *right]
    losses = []
    for a, vector in enumerate(both):
        scores = {}
        for i, other in enumerate(both):
            if i != a:
                dot = sum(x * y for x, y in zip(vector, other, strict=True))
                lengths = [sum(x * x for x in v) ** 0.5 for v in (vector, other)]
                scores[i] = dot / lengths[0] / lengths[1] / tau
        top = max(float(s.detach()) for s in scores.values())
        total = sum(torch.exp(s - top) for s in scores.values())
        partner = (a + len(left)) % len(both)
        losses.append(top + torch.log(torch.as_tensor(total)) - scores[partner])
    return torch.stack(losses)


@st.composite
def pairs(draw: st.DrawFn) -> Pairs:
    rows, dim = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    left, right = generator.normal(size=(2, rows, dim))
    # A premise with two entailed hypotheses stands in a batch twice.
    return left[generator.integers(0, rows, rows)], right


def fast_loss(left: np.ndarray, right: np.ndarray, tau: float = 0.1) -> Tensor:
    return nt_xent(torch.from_numpy(left), torch.from_numpy(right), temperature=tau)


@given(pairs(), TAUS)
def test_equals_the_equation_in_loops(batch: Pairs, tau: float) -> None:
    slow = slow_loss(torch.from_numpy(batch[0]), torch.from_numpy(batch[1]), tau)
    np.testing.assert_allclose(fast_loss(*batch, tau), slow, rtol=0, atol=1e-9)


@given(pairs(), TAUS)
def test_gradients_equal_those_of_the_loops(batch: Pairs, tau: float) -> None:
    left, right = (torch.from_numpy(side).requires_grad_() for side in batch)
    fast = torch.autograd.grad(nt_xent(left, right, temperature=tau).mean(), (left, right))
    slow = torch.autograd.grad(slow_loss(left, right, tau).mean(), (left, right))
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_above_0_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature > 0 must hold, but got temperature="):
        nt_xent(torch.eye(2), torch.eye(2), temperature=temperature)
