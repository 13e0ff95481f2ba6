"""The GIST loss against loops over all candidates that stay."""

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.losses.guided import guided, guided_similarities


def slow_cosine(u: np.ndarray, v: np.ndarray) -> float:
    return float(u @ v) / (math.hypot(*u) * math.hypot(*v))


@given(
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(0, 2**32 - 1),
    st.floats(0.02, 2.0),
    st.booleans(),
    st.booleans(),
)
def test_equals_the_formula_in_loops(
    rows: int, more: int, seed: int, tau: float, by_anchors: bool, by_positives: bool
) -> None:
    generator = np.random.default_rng(seed)
    anchors, positives = generator.normal(size=(2, rows, 4))
    negatives = generator.normal(size=(more, 4))
    cosines = guided_similarities(
        *map(torch.from_numpy, (anchors, positives, negatives)),
        contrast_anchors=by_anchors,
        contrast_positives=by_positives,
    )
    left_out = generator.random(cosines.shape) < 0.4
    left_out[np.arange(rows), np.arange(rows)] = False
    fast = guided(cosines, torch.from_numpy(left_out), temperature=tau)
    for i in range(rows):
        candidates = [slow_cosine(anchors[i], x) for x in (*positives, *negatives)]
        if by_anchors:
            candidates += [slow_cosine(anchors[i], x) for x in anchors]
        if by_positives:
            candidates += [slow_cosine(positives[i], x) for x in positives]
        stay = [c for c, out in zip(candidates, left_out[i], strict=True) if not out]
        loss = math.log(sum(math.exp(c / tau) for c in stay)) - candidates[i] / tau
        np.testing.assert_allclose(fast[i], loss, rtol=0, atol=1e-9)
