"""The three designs against SentEval's loops around scikit-learn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from senteval_loops import take
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from tune_sentcl.errors import DataError
from tune_sentcl.evaluate.logreg import FOLD_STRENGTHS, SPLIT_STRENGTHS, LogisticClassifier
from tune_sentcl.evaluate.splits import Labeled, Outcome
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder

Fit = Callable[[float, Labeled], LogisticRegression]


def exact(strength: float, rows: Labeled) -> LogisticRegression:
    model = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-8, max_iter=1000)
    return model.fit(rows.features.astype(np.float64), rows.labels)


def blobs(classes: int, rows: int, *, apart: float = 0.5, seed: int = 0) -> Labeled:
    """Rows of one cloud a class; the centers depend on the number of classes alone."""
    centers = np.random.default_rng(classes).normal(size=(classes, 8))
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(rows) % classes)
    features = rng.normal(size=(rows, 8)) + apart * centers[labels]
    return Labeled(features.astype(np.float32), labels)


def splits(rows: Labeled, folds: int) -> list[tuple[Labeled, Labeled]]:
    splitter = StratifiedKFold(folds, shuffle=True, random_state=1111)
    return [
        (take(rows, train), take(rows, test))
        for train, test in splitter.split(np.zeros(len(rows.labels)), rows.labels)
    ]


def choose(fit: Fit, pairs: list[tuple[Labeled, Labeled]], grid: tuple[float, ...]) -> list[float]:
    """SentEval's scan: the rounded mean accuracy of each `C`."""
    return [
        round(100 * np.mean([fit(c, a).score(b.features, b.labels) for a, b in pairs]), 2)
        for c in grid
    ]


def nested_loop(
    fit: Fit, rows: Labeled, folds: int, first: int | None = None
) -> tuple[list[float], list[float], list[float]]:
    """SentEval's InnerKFold: best inner scores, test scores and the `C` of each outer fold."""
    dev, test, chosen = [], [], []
    for train, held in splits(rows, folds)[:first]:
        scores = choose(fit, splits(train, folds), SPLIT_STRENGTHS)
        dev.append(max(scores))
        chosen.append(SPLIT_STRENGTHS[int(np.argmax(scores))])
        test.append(round(100 * fit(chosen[-1], train).score(held.features, held.labels), 2))
    return dev, test, chosen


@pytest.mark.parametrize("classes", [2, 3])
def test_nested_is_the_loop(classes: int) -> None:
    rows = blobs(classes, 150)
    dev, test, chosen = nested_loop(exact, rows, 3)
    found = LogisticClassifier().nested(rows, 3)
    assert found.chosen == tuple(chosen)
    assert found.dev == pytest.approx(np.mean(dev), abs=1e-9)
    assert found.test == pytest.approx(np.mean(test), abs=1e-9)
    # Folds of one size, so the mean of folds is that of rows.
    assert 100 * (found.predictions == rows.labels).mean() == pytest.approx(found.test, abs=0.01)


@pytest.mark.parametrize("classes", [2, 4])
def test_folds_then_test_is_the_loop(classes: int) -> None:
    train, test = blobs(classes, 160), blobs(classes, 90, seed=1)
    scores = choose(exact, splits(train, 4), FOLD_STRENGTHS)
    chosen = FOLD_STRENGTHS[int(np.argmax(scores))]
    _is(LogisticClassifier().folds_then_test(train, test, 4), max(scores), chosen, train, test)


@pytest.mark.parametrize("classes", [2, 5])
def test_dev_then_test_is_the_loop(classes: int) -> None:
    train, dev, test = (blobs(classes, rows, seed=rows) for rows in (160, 80, 90))
    scores = choose(exact, [(train, dev)], SPLIT_STRENGTHS)
    chosen = SPLIT_STRENGTHS[int(np.argmax(scores))]
    _is(LogisticClassifier().dev_then_test(train, dev, test), max(scores), chosen, train, test)


def _is(found: Outcome, dev: float, chosen: float, train: Labeled, test: Labeled) -> None:
    truth = exact(chosen, train)
    assert found.chosen == (chosen,)
    assert found.dev == pytest.approx(dev, abs=1e-9)
    assert found.predictions.tolist() == truth.predict(test.features).tolist()
    assert found.test == pytest.approx(100 * truth.score(test.features, test.labels), abs=1e-9)


def test_of_equal_scores_the_smallest_strength_wins() -> None:
    rows = blobs(3, 60, apart=20)
    found = LogisticClassifier().nested(rows, 3)
    assert (found.chosen, found.dev, found.test) == ((0.25,) * 3, 100, 100)
    assert LogisticClassifier().folds_then_test(rows, rows, 3).chosen == (0.5,)
    assert LogisticClassifier().dev_then_test(rows, rows, rows).chosen == (0.25,)


def test_bad_rows_are_errors() -> None:
    rows, classifier = blobs(2, 40), LogisticClassifier()
    torn = rows.features.copy()
    torn[3, 2] = np.nan
    with pytest.raises(DataError, match="row 3: features must be finite"):
        classifier.nested(Labeled(torn, rows.labels), 3)
    with pytest.raises(DataError, match="two classes or more"):
        classifier.nested(Labeled(rows.features, np.zeros(40, dtype=np.int64)), 3)
    with pytest.raises(DataError, match="rows of class 1 = 2: every class must have a row"):
        classifier.folds_then_test(Labeled(rows.features, (np.arange(40) < 2) * 1), rows, 3)
    with pytest.raises(DataError, match="width 8"):
        classifier.dev_then_test(rows, rows, Labeled(rows.features[:, :5], rows.labels))


@pytest.mark.parametrize(
    ("every", "folds"), [(24, 3), pytest.param(1, 10, marks=pytest.mark.long)]
)
def test_customer_reviews(real_data: Path, every: int, folds: int) -> None:
    """The outermost fold of the real rows, or of a part of them."""
    sentences, labels = [], []
    for label, name in enumerate(("neg", "pos")):
        text = (real_data / "downstream" / "CR" / f"custrev.{name}").read_text(encoding="latin-1")
        lines = text.removesuffix("\n").split("\n")[::every]
        sentences += [line.strip() or "." for line in lines]
        labels += [label] * len(lines)
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", 128)
    rows = Labeled(encoder.encode(sentences), np.array(labels))
    _, test, chosen = nested_loop(exact, rows, folds, first=1)
    found = LogisticClassifier().nested(rows, folds)
    assert found.chosen[0] == chosen[0]
    split = StratifiedKFold(folds, shuffle=True, random_state=1111)
    held = next(split.split(labels, labels))[1]
    hits = found.predictions[held] == rows.labels[held]
    assert round(100 * float(hits.mean()), 2) == test[0]
