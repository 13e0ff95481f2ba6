"""Logistic regression and its designs against scikit-learn's fits, one at a time in float64."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float64
from senteval_loops import LoopDesigns, Predict, stratified, take
from sklearn.linear_model import LogisticRegression

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate import logistic
from tune_sentcl.evaluate.logistic import LogisticFits
from tune_sentcl.evaluate.logreg import FOLD_STRENGTHS, SPLIT_STRENGTHS, LogisticClassifier
from tune_sentcl.evaluate.splits import Labeled, Outcome

Masks = Bool[np.ndarray, "rows fits"]
Fits = list[tuple[Float64[np.ndarray, "scores dim"], Float64[np.ndarray, " scores"]]]
STRENGTHS = (0.25, 1.0, 32.0)


def exact(strength: float, rows: Labeled) -> LogisticRegression:
    model = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-8, max_iter=1000)
    return model.fit(rows.features.astype(np.float64), rows.labels)


def blobs(
    classes: int, rows: int = 200, *, dim: int = 12, apart: float = 0.4, seed: int = 0
) -> Labeled:
    """Normal rows around one center a class; the centers depend on the classes alone."""
    centers = np.random.default_rng(classes).normal(size=(classes, dim))
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(rows) % classes)
    features = rng.normal(size=(rows, dim)) + apart * centers[labels]
    return Labeled(features.astype(np.float32), labels)


def thirds(rows: int) -> Masks:
    """All rows, and all but each third."""
    places = np.arange(rows) // 7 % 3
    return np.stack([places != out for out in (-1, 0, 1, 2)], axis=1)


def fitted(rows: Labeled, masks: Masks, strengths: tuple[float, ...] = STRENGTHS) -> Fits:
    """Coefficients and intercepts, as scikit-learn has them, by strength and then by mask."""
    fits = LogisticFits(rows.features, rows.labels)
    origin = fits.to_device(np.zeros((1, rows.features.shape[1]), dtype=np.float32))[0].double()
    return [
        (weights[:-1, :, fit].T.double().numpy(), (origin @ weights[:, :, fit].double()).numpy())
        for weights in fits.path(masks, strengths)
        for fit in range(masks.shape[1])
    ]


def one_at_a_time(rows: Labeled, masks: Masks) -> list[LogisticRegression]:
    parts = [take(rows, np.flatnonzero(mask)) for mask in masks.T]
    return [exact(strength, part) for strength in STRENGTHS for part in parts]


PLAIN = blobs(3)
CASES = {
    "plain": blobs(2),
    "separable": blobs(3, apart=4),
    "more features than rows": blobs(6, 60, dim=90),
    "far from the origin": Labeled(PLAIN.features + np.float32(30), PLAIN.labels),
    "one common class": Labeled(
        PLAIN.features, np.where(np.arange(200) % 10 < 7, 0, PLAIN.labels)
    ),
    "each feature twice and a constant one": Labeled(
        np.hstack([PLAIN.features, PLAIN.features, np.full((200, 1), 7, np.float32)]), PLAIN.labels
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_coefficients_are_those_of_scikit_learn(name: str) -> None:
    rows = CASES[name]
    masks = thirds(len(rows.labels))
    for (coefficients, intercepts), truth in zip(
        fitted(rows, masks), one_at_a_time(rows, masks), strict=True
    ):
        length = np.linalg.norm(truth.coef_)
        assert np.linalg.norm(coefficients - truth.coef_) <= 1e-3 * length
        reach = length * np.linalg.norm(rows.features, axis=1).mean()
        assert np.abs(intercepts - truth.intercept_).max() <= 1e-3 * reach


def same(ours: Fits, theirs: Fits) -> None:
    for one, two in zip(ours, theirs, strict=True):
        assert np.linalg.norm(one[0] - two[0]) <= 3e-4 * np.linalg.norm(one[0])


@pytest.mark.parametrize("classes", [2, 3])
def test_company_changes_no_fit(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, masks = blobs(classes), thirds(200)
    together = fitted(rows, masks)
    alone = [(c, mask[:, None]) for c in STRENGTHS for mask in masks.T]
    same(together, [fit for c, mask in alone for fit in fitted(rows, mask, (c,))])
    monkeypatch.setattr(logistic, "_BLOCK", 1)
    same(together, fitted(rows, masks))


def test_float64_takes_over_where_float32_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted(PLAIN, thirds(200))
    newton = LogisticFits._newton

    def stalling(self: LogisticFits, *given: object) -> object:
        if self.rows.dtype == torch.float32:
            raise logistic._StalledError
        return newton(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LogisticFits, "_newton", stalling)
    same(expected, fitted(PLAIN, thirds(200)))


def test_huge_features_are_fitted_and_failures_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = blobs(6, apart=5)
    fits = LogisticFits(rows.features * np.float32(1e4), rows.labels)
    for weights in fits.path(thirds(200), STRENGTHS):
        assert (fits.predict(weights, fits.rows) == rows.labels[:, None]).all()
    monkeypatch.setattr(logistic, "_NEWTON_STEPS", 1)
    with pytest.raises(
        NonFiniteError, match=r"C = 0\.25 does not converge.*Scale the features down"
    ):
        fitted(PLAIN, thirds(200))


# The three designs against SentEval's loops


def designs(grid: Sequence[float]) -> LoopDesigns:
    def fit(strength: float, train: Labeled, dev: Labeled | None) -> Predict:
        model = exact(strength, train)
        return lambda rows: model.predict(rows.features)

    return LoopDesigns(fit, grid)


def same_outcome(found: Outcome, expected: Outcome) -> None:
    assert found.chosen == expected.chosen
    assert found.predictions.tolist() == expected.predictions.tolist()
    assert found.dev == pytest.approx(expected.dev, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_nested_is_the_loop(classes: int) -> None:
    rows, loops = blobs(classes, 150, dim=8), designs(SPLIT_STRENGTHS)
    outcome = LogisticClassifier().nested(rows, 3)
    expected = loops.nested(rows, stratified(rows, 3), lambda t: stratified(take(rows, t), 3))
    same_outcome(outcome, expected)
    assert outcome.test == pytest.approx(expected.test, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 5])
def test_the_designs_with_test_rows_are_the_loops(classes: int) -> None:
    train, dev, test = (blobs(classes, rows, dim=8, seed=rows) for rows in (160, 80, 90))
    for found, expected in (
        (
            LogisticClassifier().folds_then_test(train, test, 4),
            designs(FOLD_STRENGTHS).folds_then_test(train, test, 4),
        ),
        (
            LogisticClassifier().dev_then_test(train, dev, test),
            designs(SPLIT_STRENGTHS).dev_then_test(train, dev, test),
        ),
    ):
        same_outcome(found, expected)
        hits = found.predictions == test.labels
        assert found.test == pytest.approx(100 * hits.mean(), abs=1e-9)


def test_of_equal_scores_the_smallest_strength_wins() -> None:
    rows = blobs(3, 60, apart=20)
    found = LogisticClassifier().nested(rows, 3)
    assert (found.chosen, found.dev, found.test) == ((0.25,) * 3, 100, 100)
    assert LogisticClassifier().folds_then_test(rows, rows, 3).chosen == (0.5,)
    assert LogisticClassifier().dev_then_test(rows, rows, rows).chosen == (0.25,)
