"""CoSENT: the loss against loops, and the method end to end on toy pairs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config import parse_dotted
from tune_sentcl.losses.cosent import cosent
from tune_sentcl.train import train
from tune_sentcl.trial import InputLoader, assemble


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


@given(pairs(), st.floats(0.01, 100), st.integers(0, 1000))
def test_neither_lengths_nor_order_nor_the_scale_of_scores_matter(
    batch: tuple[np.ndarray, np.ndarray, np.ndarray, float], scale: float, seed: int
) -> None:
    left, right, scores, tau = batch
    order = np.random.default_rng(seed).permutation(len(scores))
    plain = cosent(*map(torch.from_numpy, (left, right, scores)), temperature=tau)
    changed = (left[order] * scale, right[order], np.exp(scores[order]))
    again = cosent(*map(torch.from_numpy, changed), temperature=tau)
    torch.testing.assert_close(plain, again, rtol=0, atol=1e-9)


@pytest.mark.parametrize("length", [0.0, 1e-12, 1e-6, 1e-3])
def test_short_vectors_have_bounded_gradients(length: float) -> None:
    left = torch.tensor([[1.0, 2.0], [length, 0.0]], requires_grad=True)
    right = torch.tensor([[0.5, 1.0], [0.0, 1.0]])
    cosent(left, right, torch.tensor([0.0, 1.0]), temperature=1.0).backward()
    assert left.grad is not None
    assert float(left.grad.norm()) <= 1e4


def test_equal_scores_have_nothing_to_order() -> None:
    ones = torch.ones(5)
    assert cosent(torch.randn(5, 3), torch.randn(5, 3), ones, temperature=0.05).item() == 0.0


def test_equal_embeddings_give_the_log_of_the_number_of_ordered_pairs() -> None:
    ones, scores = torch.ones(5, 3), torch.arange(5.0)
    assert cosent(ones, ones, scores, temperature=0.05).item() == pytest.approx(math.log(1 + 10))


def test_a_trial_learns_the_order_of_toy_pairs() -> None:
    values = {
        "method.name": "cosent",
        "encoder.checkpoint": "toy",
        "encoder.pooling": "mean",
        "data.source": "toy",
        "data.order": "shuffled",
        "optimizer.lr": 1e-3,
        "optimizer.epochs": 12,
        "optimizer.batch_size": 30,
    }
    config = parse_dotted(values, "test")
    inputs = InputLoader(None).load(config)
    steps = train(assemble(config, inputs, "cpu"), inputs.corpus, config)
    losses = [step.losses["loss"] for step in steps]
    assert len(losses) == 120
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3
