"""The SCL loss against a loop written from its formula."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses import Similarity, pairwise_similarity, supervised_contrastive


def slow_loss(
    u: np.ndarray, v: np.ndarray, positives: np.ndarray, negatives: np.ndarray, tau: float
) -> list[float]:
    """L_i = -(1/|P_i|) sum_p [s_ip - log sum_{k in P_i and N_i} exp s_ik], number by number."""
    losses = []
    for i in range(len(u)):
        similarities = [
            sum(float(a) * float(b) for a, b in zip(u[i], v[j], strict=True)) / tau
            for j in range(len(v))
        ]
        reachable = [j for j in range(len(v)) if positives[i][j] or negatives[i][j]]
        top = max(similarities[j] for j in reachable)
        log_sum = top + math.log(sum(math.exp(similarities[j] - top) for j in reachable))
        own = [similarities[j] - log_sum for j in range(len(v)) if positives[i][j]]
        losses.append(-sum(own) / len(own))
    return losses


@st.composite
def contrasts(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    anchors, candidates = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    u = generator.normal(size=(anchors, 4))
    # Few distinct rows, so that equal sentences are common.
    distinct = generator.normal(size=(draw(st.integers(1, candidates)), 4))
    v = distinct[generator.integers(0, len(distinct), candidates)]
    role = generator.integers(0, 3, size=(anchors, candidates))
    role[np.arange(anchors), generator.integers(0, candidates, anchors)] = 0
    tau = draw(st.floats(0.05, 5.0))
    return u, v, role == 0, role == 1, tau


@given(contrasts())
def test_equals_the_formula_in_loops(
    batch: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float],
) -> None:
    u, v, positives, negatives, tau = batch
    fast = supervised_contrastive(
        *(torch.from_numpy(part) for part in (u, v, positives, negatives)), temperature=tau
    )
    np.testing.assert_allclose(fast, slow_loss(u, v, positives, negatives, tau), rtol=0, atol=1e-9)


@given(contrasts(), st.floats(0.01, 100))
def test_under_cosine_lengths_change_nothing(
    batch: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float], scale: float
) -> None:
    tau = batch[4]
    u, v, positives, negatives = (torch.from_numpy(part) for part in batch[:4])
    plain, scaled = (
        supervised_contrastive(
            u * factor, v, positives, negatives, temperature=tau, similarity="cosine"
        )
        for factor in (1.0, scale)
    )
    torch.testing.assert_close(plain, scaled, rtol=0, atol=1e-9)


def test_gradients_are_finite_where_a_candidate_is_masked() -> None:
    u = torch.randn(2, 3, requires_grad=True)
    own = torch.eye(2, dtype=torch.bool)
    supervised_contrastive(u, u, own, ~own & False, temperature=0.01).sum().backward()
    assert u.grad is not None and bool(torch.isfinite(u.grad).all())


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_above_0_is_refused(temperature: float) -> None:
    own = torch.eye(2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"temperature > 0 must hold, but got temperature="):
        supervised_contrastive(torch.eye(2), torch.eye(2), own, ~own, temperature=temperature)


def test_an_anchor_without_a_positive_is_refused() -> None:
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    nothing[0, 0] = True
    with pytest.raises(ValueError, match=r"anchors \[1\] have none"):
        supervised_contrastive(torch.eye(2), torch.eye(2), nothing, ~nothing, temperature=1.0)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_similarity_equals_a_loop(similarity: Similarity) -> None:
    left, right = torch.randn(3, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    found = pairwise_similarity(left, right, similarity)
    for i, j in np.ndindex(3, 4):
        dot = sum(a * b for a, b in zip(left[i].tolist(), right[j].tolist(), strict=True))
        lengths = math.dist(left[i], [0] * 5) * math.dist(right[j], [0] * 5)
        expected = dot if similarity == "dot" else dot / lengths
        assert found[i, j].item() == pytest.approx(expected, abs=1e-12)
