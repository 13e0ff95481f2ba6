"""Correlations against SciPy and cosines against loops; what has no value is an error."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.sts import paired_cosine, pearson, spearman

# Few distinct values, so that ties are the rule.
tied = st.lists(
    st.tuples(st.integers(0, 4), st.floats(-5, 5).map(lambda x: round(x, 1))),
    min_size=2,
    max_size=30,
)


@given(rows=tied)
@settings(deadline=None)
def test_correlations_are_those_of_scipy(rows: list[tuple[int, float]]) -> None:
    x, y = [float(a) for a, _ in rows], [b for _, b in rows]
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    assert pearson(x, y, "it") == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
    assert spearman(x, y, "it") == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


@pytest.mark.parametrize("measure", [pearson, spearman])
@pytest.mark.parametrize(
    ("x", "y", "rule"),
    [
        ([], [], "2 rows"),
        ([1.0], [2.0], "2 rows"),
        ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], "nothing varies"),
        ([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], "nothing varies"),
        ([1.0, math.nan], [1.0, 2.0], "row 1"),
        ([1.0, 2.0], [math.inf, 2.0], "row 0"),
    ],
)
def test_what_has_no_value_is_an_error(
    measure: object, x: list[float], y: list[float], rule: str
) -> None:
    assert callable(measure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NonFiniteError, match=rf"STS12 headlines.*{rule}"):
            measure(x, y, "STS12 headlines")


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be correlated"):
        pearson([1.0, 2.0], [1.0, 2.0, 3.0], "it")


def test_cosine_equals_the_loop() -> None:
    generator = np.random.default_rng(0)
    left, right = generator.standard_normal((2, 9, 5)).astype(np.float32)
    for u, v, cosine in zip(
        left.tolist(), right.tolist(), paired_cosine(left, right, "it"), strict=True
    ):
        dot = math.fsum(a * b for a, b in zip(u, v, strict=True))
        assert cosine == pytest.approx(dot / math.hypot(*u) / math.hypot(*v), abs=1e-14)


def test_cosine_of_large_and_small_vectors_does_not_overflow() -> None:
    left = np.array([[3e38, 3e38], [1e-40, 0]], dtype=np.float32)
    assert paired_cosine(left, left, "it").tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_cosine_without_a_value_is_an_error(value: float, zeros: bool) -> None:
    left = np.ones((3, 2), dtype=np.float32)
    right = left.copy()
    right[1] = value
    if zeros and value == 0:  # may count as 0
        assert paired_cosine(left, right, "it", zeros=True).tolist() == pytest.approx([1, 0, 1])
        return
    for sides in ((left, right), (right, left)):
        with pytest.raises(NonFiniteError, match="STS-B: the cosine of pair 1"):
            paired_cosine(*sides, "STS-B", zeros=zeros)
