"""The contrastive loss of SimCSE and ConIsI against a loop written from its equation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses import Similarity, info_nce

SIMILARITIES = st.sampled_from(("cosine", "dot"))


def slow_loss(
    anchors: np.ndarray, candidates: np.ndarray, tau: float, similarity: Similarity
) -> list[float]:
    """L_i = -log(exp(s_ii) / sum_j exp(s_ij)), number by number."""
    losses = []
    for i, anchor in enumerate(anchors):
        scores = []
        for candidate in candidates:
            score = sum(float(a) * float(c) for a, c in zip(anchor, candidate, strict=True))
            if similarity == "cosine":
                score /= math.dist(anchor, [0] * len(anchor))
                score /= math.dist(candidate, [0] * len(candidate))
            scores.append(score / tau)
        top = max(scores)
        losses.append(top + math.log(sum(math.exp(s - top) for s in scores)) - scores[i])
    return losses


@st.composite
def sides(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rows, dim = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    candidates = generator.normal(size=(rows, dim))
    # Sometimes a sentence stands in the batch twice.
    return generator.normal(size=(rows, dim)), candidates[generator.integers(0, rows, rows)]


def fast_loss(
    anchors: np.ndarray, candidates: np.ndarray, tau: float, similarity: Similarity = "cosine"
) -> torch.Tensor:
    both = (torch.from_numpy(side) for side in (anchors, candidates))
    return info_nce(*both, temperature=tau, similarity=similarity)


@given(sides(), st.floats(0.02, 5.0), SIMILARITIES)
def test_equals_the_equation_in_loops(
    batch: tuple[np.ndarray, np.ndarray], tau: float, similarity: Similarity
) -> None:
    found = fast_loss(*batch, tau, similarity)
    np.testing.assert_allclose(found, slow_loss(*batch, tau, similarity), rtol=0, atol=1e-9)


def test_autocast_takes_no_digits_from_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(16, 8, generator=generator)
    candidates = anchors + torch.randn(16, 8, generator=generator)
    plain = info_nce(anchors, candidates, temperature=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        found = info_nce(anchors, candidates, temperature=0.05)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_above_0_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature > 0 must hold, but got temperature="):
        info_nce(torch.eye(2), torch.eye(2), temperature=temperature)


@given(sides(), st.integers(0, 4), st.floats(0.02, 5.0), st.integers(0, 1000))
def test_weights_and_more_negatives_equal_the_sum_in_loops(
    batch: tuple[np.ndarray, np.ndarray], more: int, tau: float, seed: int
) -> None:
    anchors, positives = batch
    generator = np.random.default_rng(seed)
    candidates = np.concatenate([positives, generator.normal(size=(more, anchors.shape[1]))])
    weights = generator.choice([0.0, 0.5, 1.0, 3.0], size=(len(anchors), len(candidates)))
    weights[np.arange(len(anchors)), np.arange(len(anchors))] = 1.0
    both = (torch.from_numpy(side) for side in (anchors, candidates))
    fast = info_nce(*both, temperature=tau, bias=torch.from_numpy(weights).log())
    for i, anchor in enumerate(anchors):
        cosines = [float(anchor @ c) / (math.hypot(*anchor) * math.hypot(*c)) for c in candidates]
        total = sum(w * math.exp(c / tau) for w, c in zip(weights[i], cosines, strict=True))
        expected = math.log(total) - cosines[i] / tau
        np.testing.assert_allclose(fast[i], expected, rtol=0, atol=1e-9)
