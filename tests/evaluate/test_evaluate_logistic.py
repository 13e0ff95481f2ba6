"""Fits together against scikit-learn's, one at a time in double precision."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Bool, Float32, Float64, Int
from sklearn.linear_model import LogisticRegression

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate import logistic
from tune_sentcl.evaluate.logistic import LogisticFits

Features = Float32[np.ndarray, "rows dim"]
Labels = Int[np.ndarray, " rows"]
Masks = Bool[np.ndarray, "rows fits"]
STRENGTHS = (0.25, 1.0, 32.0)


def blobs(
    classes: int, *, rows: int = 200, dim: int = 12, apart: float = 0.3, seed: int = 0
) -> tuple[Features, Labels]:
    """Normal rows around one center a class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    x = rng.normal(size=(rows, dim)) + apart * rng.normal(size=(classes, dim))[labels]
    return x.astype(np.float32), labels


def thirds(rows: int) -> Masks:
    """All rows, and all but each third."""
    places = np.arange(rows) // 7 % 3
    return np.stack([places != out for out in (-1, 0, 1, 2)], axis=1)


def fitted(
    x: Features, y: Labels, masks: Masks, strengths: tuple[float, ...] = STRENGTHS
) -> list[tuple[Float64[np.ndarray, "scores dim"], Float64[np.ndarray, " scores"]]]:
    """Coefficients and intercepts, as scikit-learn has them, by strength and then by mask."""
    fits = LogisticFits(x, y)
    origin = fits.to_device(np.zeros((1, x.shape[1]), dtype=np.float32))[0].double()
    return [
        (weights[:-1, :, fit].T.double().numpy(), (origin @ weights[:, :, fit].double()).numpy())
        for weights in fits.path(masks, strengths)
        for fit in range(masks.shape[1])
    ]


def one_at_a_time(
    x: Features, y: Labels, masks: Masks, strengths: tuple[float, ...] = STRENGTHS
) -> list[LogisticRegression]:
    """The same fits by scikit-learn."""
    return [
        LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-8, max_iter=1000).fit(
            x[mask].astype(np.float64), y[mask]
        )
        for strength in strengths
        for mask in masks.T
    ]


def case(name: str) -> tuple[Features, Labels]:
    if name == "plain":
        return blobs(2)
    if name == "separable":
        return blobs(3, apart=4)
    if name == "more features than rows":
        return blobs(6, rows=60, dim=90)
    x, y = blobs(3)
    if name == "far from the origin":
        return x + np.float32(30), y
    if name == "one common class":
        return x, np.where(np.arange(len(y)) % 10 < 7, 0, y)
    return np.hstack([x, x, np.full_like(x[:, :1], 7)]), y


CASES = (
    *("plain", "separable", "more features than rows", "far from the origin"),
    *("one common class", "each feature twice and a constant one"),
)


@pytest.mark.parametrize("name", CASES)
def test_coefficients_are_those_of_scikit_learn(name: str) -> None:
    x, y = case(name)
    masks = thirds(len(y))
    for (coefficients, intercepts), truth in zip(
        fitted(x, y, masks), one_at_a_time(x, y, masks), strict=True
    ):
        length = np.linalg.norm(truth.coef_)
        assert np.linalg.norm(coefficients - truth.coef_) <= 1e-3 * length
        reach = length * np.linalg.norm(x, axis=1).mean()
        assert np.abs(intercepts - truth.intercept_).max() <= 1e-3 * reach


@given(
    classes=st.integers(2, 4),
    rows=st.integers(24, 60),
    dim=st.integers(1, 6),
    apart=st.floats(0, 3),
    scale=st.sampled_from([0.01, 1.0, 100.0]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=10)
def test_chances_are_those_of_scikit_learn(
    classes: int, rows: int, dim: int, apart: float, scale: float, seed: int
) -> None:
    x, y = blobs(classes, rows=rows, dim=dim, apart=apart, seed=seed)
    x *= np.float32(scale)
    masks = np.ones((rows, 1), dtype=np.bool_)
    for (coefficients, intercepts), truth in zip(
        fitted(x, y, masks), one_at_a_time(x, y, masks), strict=True
    ):
        logits = torch.from_numpy(x @ coefficients.T + intercepts)
        ours = torch.sigmoid(logits[:, 0]) if classes == 2 else logits.softmax(1)[:, 1]
        assert np.abs(ours.numpy() - truth.predict_proba(x.astype(np.float64))[:, 1]).max() < 2e-3


@pytest.mark.parametrize("classes", [2, 3])
def test_company_changes_no_fit(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(classes)
    masks = thirds(len(y))
    together = fitted(x, y, masks)
    monkeypatch.setattr(logistic, "_BLOCK", 1)
    blocks = fitted(x, y, masks)
    alone = [
        fit for strength in STRENGTHS for mask in masks.T
        for fit in fitted(x, y, mask[:, None], (strength,))
    ]  # fmt: skip
    for one, two, three in zip(together, blocks, alone, strict=True):
        length = np.linalg.norm(one[0])
        assert np.linalg.norm(one[0] - two[0]) <= 3e-4 * length
        assert np.linalg.norm(one[0] - three[0]) <= 3e-4 * length


@pytest.mark.parametrize("classes", [2, 3])
def test_features_that_say_nothing_leave_the_common_class(classes: int) -> None:
    y = np.minimum(np.arange(50) % 10, classes - 1)
    fits = LogisticFits(np.ones((50, 4), dtype=np.float32), y)
    (weights,) = fits.path(np.ones((50, 1), dtype=np.bool_), (1.0,))
    assert torch.linalg.norm(weights[:-1]) < 1e-5
    assert set(fits.predict(weights, fits.rows)[:, 0]) == {classes - 1}


def test_float64_takes_over_where_float32_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(3)
    masks = thirds(200)
    wanted = fitted(x, y, masks)
    newton = LogisticFits._newton

    def stalling(self: LogisticFits, *given: object) -> object:
        if self.rows.dtype == torch.float32:
            raise logistic._StalledError
        return newton(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LogisticFits, "_newton", stalling)
    for one, two in zip(wanted, fitted(x, y, masks), strict=True):
        assert np.linalg.norm(one[0] - two[0]) <= 3e-4 * np.linalg.norm(one[0])


def test_huge_features_are_fitted() -> None:
    x, y = blobs(6, apart=5)
    x *= np.float32(1e4)
    fits = LogisticFits(x, y)
    for weights in fits.path(thirds(200), STRENGTHS):
        assert (fits.predict(weights, fits.rows) == y[:, None]).all()


def test_a_fit_that_does_not_converge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(2)
    monkeypatch.setattr(logistic, "_NEWTON_STEPS", 1)
    with pytest.raises(NonFiniteError, match=r"C = 0\.25 does not converge.*Scale them down"):
        fitted(x, y, thirds(200))
