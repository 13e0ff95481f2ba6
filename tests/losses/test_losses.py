"""Every loss against loops written from its equation."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tune_sentcl.losses import (
    Similarity,
    info_nce,
    interactive,
    nt_xent,
    pairwise_similarity,
    supervised_contrastive,
)
from tune_sentcl.losses.angle import angle, angle_similarity
from tune_sentcl.losses.cosent import cosent
from tune_sentcl.losses.guided import guided, guided_similarities
from tune_sentcl.losses.triplet import Distance, triplet

GENERATORS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
ROWS = st.integers(1, 7)
TAUS = st.floats(0.02, 5.0)
KINDS = st.sampled_from(("cosine", "dot"))
SAME = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)


def tensors(*arrays: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def slow_similarity(u: np.ndarray, v: np.ndarray, kind: Similarity = "cosine") -> float:
    dot = sum(float(a) * float(b) for a, b in zip(u, v, strict=True))
    return dot if kind == "dot" else dot / (math.hypot(*u) * math.hypot(*v))


def slow_log_sum(scores: Iterable[float]) -> float:
    scores = list(scores)
    return max(scores) + math.log(sum(math.exp(score - max(scores)) for score in scores))


@given(GENERATORS, ROWS, st.integers(0, 4), TAUS, KINDS)
def test_info_nce(
    generator: np.random.Generator, rows: int, more: int, tau: float, kind: Similarity
) -> None:
    """With further negatives and weights of the candidates, 0 among them."""
    anchors, candidates = generator.normal(size=(rows, 3)), generator.normal(size=(rows + more, 3))
    weights = generator.choice([0.0, 0.5, 1.0, 3.0], size=(rows, rows + more))
    np.fill_diagonal(weights, 1.0)
    scores = [[slow_similarity(a, c, kind) / tau for c in candidates] for a in anchors]
    plain = [slow_log_sum(row) - row[i] for i, row in enumerate(scores)]
    weighted = [
        slow_log_sum(s + math.log(w) for s, w in zip(row, weights[i], strict=True) if w) - row[i]
        for i, row in enumerate(scores)
    ]
    both, bias = tensors(anchors, candidates), torch.from_numpy(weights).log()
    SAME(info_nce(*both, temperature=tau, similarity=kind), plain)
    SAME(info_nce(*both, temperature=tau, similarity=kind, bias=bias), weighted)


@given(GENERATORS, ROWS, TAUS)
def test_nt_xent(generator: np.random.Generator, rows: int, tau: float) -> None:
    left, right = generator.normal(size=(2, rows, 3))
    left = left[generator.integers(0, rows, rows)]  # a premise may stand in a batch twice
    both = [*left, *right]
    expected = []
    for a, vector in enumerate(both):
        scores = {i: slow_similarity(vector, v) / tau for i, v in enumerate(both) if i != a}
        expected.append(slow_log_sum(scores.values()) - scores[(a + rows) % len(both)])
    SAME(nt_xent(*tensors(left, right), temperature=tau), expected)


@given(GENERATORS, ROWS, st.integers(1, 9), TAUS, KINDS)
def test_supervised_contrastive(
    generator: np.random.Generator, rows: int, others: int, tau: float, kind: Similarity
) -> None:
    """L_i = -(1/|P_i|) sum_p [s_ip - log sum_{k in P_i and N_i} exp s_ik]."""
    u = generator.normal(size=(rows, 4))
    # Few distinct rows, so that equal sentences are common.
    v = generator.normal(size=(3, 4))[generator.integers(0, 3, others)]
    role = generator.integers(0, 3, size=(rows, others))
    role[np.arange(rows), generator.integers(0, others, rows)] = 0
    expected = []
    for i in range(rows):
        scores = [slow_similarity(u[i], other, kind) / tau for other in v]
        log_sum = slow_log_sum(s for s, r in zip(scores, role[i], strict=True) if r != 2)
        own = [s - log_sum for s, r in zip(scores, role[i], strict=True) if r == 0]
        expected.append(-sum(own) / len(own))
    parts = tensors(u, v, role == 0, role == 1)
    SAME(supervised_contrastive(*parts, temperature=tau, similarity=kind), expected)


def test_masked_candidates_keep_gradients_finite() -> None:
    u = torch.randn(2, 3, requires_grad=True)
    own = torch.eye(2, dtype=torch.bool)
    supervised_contrastive(u, u, own, ~own & False, temperature=0.01).sum().backward()
    assert u.grad is not None and bool(torch.isfinite(u.grad).all())


def test_an_anchor_without_a_positive_is_refused() -> None:
    positives = torch.tensor([[True, False], [False, False]])
    with pytest.raises(ValueError, match=r"anchors \[1\] have none"):
        supervised_contrastive(torch.eye(2), torch.eye(2), positives, ~positives, temperature=1.0)


@given(GENERATORS, ROWS, st.integers(1, 7), TAUS)
def test_angle(generator: np.random.Generator, rows: int, width: int, tau: float) -> None:
    """By complex numbers; of an odd width the last imaginary part is 0."""
    sides = generator.normal(size=(2, rows, width))
    scores = generator.integers(0, 4, rows).astype(float)
    half = (width + 1) // 2
    padded = np.pad(sides, ((0, 0), (0, 0), (0, width % 2)))
    z, w = padded[..., :half] + 1j * padded[..., half:]
    near = []
    for i in range(rows):
        total = sum(a * b.conjugate() for a, b in zip(z[i], w[i], strict=True))
        lengths = math.hypot(*sides[0, i]) * math.hypot(*sides[1, i])
        near.append(abs(total.real + total.imag) / lengths / tau)
    pairs = [(i, j) for i, j in product(range(rows), repeat=2) if scores[i] > scores[j]]
    expected = slow_log_sum([0.0, *(near[j] - near[i] for i, j in pairs)])
    SAME(angle(*tensors(*sides, scores), temperature=tau), expected)


def test_angle_has_a_slope_where_a_cosine_has_none() -> None:
    left = torch.tensor([[1.0, 0.0, 0.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(angle_similarity(left, left.detach().clone()).sum(), left)
    assert float(slope.norm()) == pytest.approx(1.0)


@given(GENERATORS, ROWS, st.integers(0, 4), TAUS, st.booleans(), st.booleans())
def test_guided(
    generator: np.random.Generator,
    rows: int,
    more: int,
    tau: float,
    by_anchors: bool,
    by_positives: bool,
) -> None:
    anchors, positives = generator.normal(size=(2, rows, 4))
    negatives = generator.normal(size=(more, 4))
    cosines = guided_similarities(
        *tensors(anchors, positives, negatives),
        contrast_anchors=by_anchors,
        contrast_positives=by_positives,
    )
    left_out = generator.random(cosines.shape) < 0.4
    np.fill_diagonal(left_out, False)
    expected = []
    for i in range(rows):
        candidates = [(anchors[i], other) for other in (*positives, *negatives)]
        candidates += [(anchors[i], other) for other in anchors if by_anchors]
        candidates += [(positives[i], other) for other in positives if by_positives]
        scores = [slow_similarity(*pair) / tau for pair in candidates]
        kept = (s for s, out in zip(scores, left_out[i], strict=True) if not out)
        expected.append(slow_log_sum(kept) - scores[i])
    SAME(guided(cosines, torch.from_numpy(left_out), temperature=tau), expected)


def slow_distance(u: np.ndarray, v: np.ndarray, distance: Distance) -> float:
    return math.dist(u, v) if distance == "euclidean" else 1 - slow_similarity(u, v)


DISTANCES: tuple[Distance, ...] = ("euclidean", "cosine")


@pytest.mark.parametrize("distance", DISTANCES)
@given(GENERATORS, ROWS, st.floats(0.01, 5.0))
def test_triplet(
    distance: Distance, generator: np.random.Generator, rows: int, margin: float
) -> None:
    sides = generator.normal(size=(3, rows, 4))
    expected = [
        max(0.0, slow_distance(a, p, distance) - slow_distance(a, n, distance) + margin)
        for a, p, n in zip(*sides, strict=True)
    ]
    SAME(triplet(*tensors(*sides), margin=margin, distance=distance), expected)


@pytest.mark.parametrize("distance", DISTANCES)
def test_equal_sentences_of_a_triplet_have_a_finite_slope(distance: Distance) -> None:
    same = torch.ones(2, 3, requires_grad=True)
    triplet(same, same, torch.zeros(2, 3), margin=5.0, distance=distance).sum().backward()
    assert same.grad is not None and bool(torch.isfinite(same.grad).all())


@given(GENERATORS, ROWS, st.sampled_from((1, 1, 2, 5)), st.floats(0.1, 20))
def test_interactive(generator: np.random.Generator, rows: int, width: int, scale: float) -> None:
    doubled, composed = generator.normal(scale=scale, size=(2, rows, width))
    expected = [
        np.mean([slow_log_sum([y, z]) - y for y, z in zip(*pair, strict=True)])
        for pair in zip(doubled, composed, strict=True)
    ]
    SAME(interactive(*tensors(doubled, composed)), expected)


def test_interactive_scores_far_apart_stay_finite() -> None:
    far = torch.tensor([[1e4], [-1e4]])
    assert interactive(far, -far).tolist() == [0.0, 2e4]


def test_autocast_takes_no_digits_from_a_similarity() -> None:
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(16, 8, generator=generator)
    candidates = anchors + torch.randn(16, 8, generator=generator)
    plain = pairwise_similarity(anchors, candidates, "cosine")
    with torch.autocast("cpu", torch.bfloat16):
        cast = pairwise_similarity(anchors, candidates, "cosine")
    assert cast.dtype == torch.float32
    torch.testing.assert_close(cast, plain, rtol=0, atol=1e-5)


EYE = torch.eye(2)
OWN = torch.eye(2, dtype=torch.bool)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
@pytest.mark.parametrize(
    "loss",
    [
        partial(info_nce, EYE, EYE),
        partial(nt_xent, EYE, EYE),
        partial(supervised_contrastive, EYE, EYE, OWN, ~OWN),
        partial(angle, EYE, EYE, torch.tensor([0.0, 1.0])),
        partial(guided, EYE, ~OWN),
    ],
)
def test_a_temperature_that_is_not_above_0_is_refused(
    loss: Callable[..., Tensor], temperature: float
) -> None:
    with pytest.raises(ValueError, match=r"temperature > 0 must hold, but got temperature="):
        loss(temperature=temperature)


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
