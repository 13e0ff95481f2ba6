"""The protocol `logreg`: SentEval's scikit-learn mode, with every fit at its minimum.

Only the folds are random, with a fixed seed. SentEval uses scikit-learn's default tolerance, at
which float32 and float64 features choose different regularizations. The minimum is unique.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from tune_sentcl.evaluate.logistic import LogisticFits
from tune_sentcl.evaluate.splits import (
    Labeled,
    Outcome,
    RowNumbers,
    stratified_folds,
)

SPLIT_STRENGTHS = tuple(2.0**power for power in range(-2, 4))
"""Values of `C` for nested folds and for a development split."""
FOLD_STRENGTHS = tuple(2.0**power for power in range(-1, 6))
"""Values of `C` for the folds of a training split."""


@dataclass(frozen=True)
class LogisticClassifier:
    """A logistic regression with the three designs of the module `splits`.

    Scores that choose `C` are rounded to two decimals as in SentEval; the smallest `C` wins a tie.

    Attributes:
        device: The torch device to fit on.
    """

    device: str = "cpu"

    def nested(self, rows: Labeled, folds: int) -> Outcome:
        """Test each outer fold by a fit on the others, whose inner folds choose `C`."""
        outer = stratified_folds(rows.labels, folds)
        inner = [
            (train[fit], train[dev])
            for train, _ in outer
            for fit, dev in stratified_folds(rows.labels[train], folds)
        ]
        count, each = len(outer), len(inner) // len(outer)
        masks = _masks(rows, [train for train, _ in outer + inner])
        fits = LogisticFits(rows.features, rows.labels, self.device)
        scan, by_strength = [], []
        for weights in fits.path(masks, SPLIT_STRENGTHS):
            predicted = fits.predict(weights, fits.rows)
            by_strength.append(predicted[:, :count])
            reached = _accuracies(rows, predicted[:, count:], [dev for _, dev in inner])
            scan.append([_percent(reached[at : at + each]) for at in range(0, len(inner), each)])
        best = np.argmax(scan, axis=0)
        refits = np.stack(
            [by_strength[choice][:, fold] for fold, choice in enumerate(best)], axis=1
        )
        predictions = np.empty_like(refits[:, 0])
        for fold, (_, out) in enumerate(outer):
            predictions[out] = refits[out, fold]
        test = [
            _percent([reached]) for reached in _accuracies(rows, refits, [o for _, o in outer])
        ]
        return Outcome(
            float(np.mean(np.max(scan, axis=0))),
            float(np.mean(test)),
            predictions,
            tuple(SPLIT_STRENGTHS[choice] for choice in best),
        )

    def folds_then_test(self, train: Labeled, test: Labeled, folds: int) -> Outcome:
        """Choose `C` by folds, and refit on all training rows."""
        parts = stratified_folds(train.labels, folds)
        masks = _masks(train, [np.arange(len(train.labels)), *(fit for fit, _ in parts)])
        fits = LogisticFits(train.features, train.labels, self.device)
        tested = fits.to_device(test.features)
        scan, by_strength = [], []
        for weights in fits.path(masks, FOLD_STRENGTHS):
            predicted = fits.predict(weights[:, :, 1:], fits.rows)
            scan.append(_percent(_accuracies(train, predicted, [dev for _, dev in parts])))
            by_strength.append(fits.predict(weights[:, :, :1], tested)[:, 0])
        return _outcome(scan, by_strength, test, FOLD_STRENGTHS)

    def dev_then_test(self, train: Labeled, dev: Labeled, test: Labeled) -> Outcome:
        """Choose `C` on `dev`; the chosen fit has all training rows, so no refit follows."""
        fits = LogisticFits(train.features, train.labels, self.device)
        on_dev, tested = fits.to_device(dev.features), fits.to_device(test.features)
        scan, by_strength = [], []
        for weights in fits.path(_masks(train, [np.arange(len(train.labels))]), SPLIT_STRENGTHS):
            predicted = fits.predict(weights, on_dev)
            scan.append(_percent(_accuracies(dev, predicted, [np.arange(len(dev.labels))])))
            by_strength.append(fits.predict(weights, tested)[:, 0])
        return _outcome(scan, by_strength, test, SPLIT_STRENGTHS)


def _masks(rows: Labeled, trained: Sequence[RowNumbers]) -> Bool[np.ndarray, "rows fits"]:
    masks = np.zeros((len(rows.labels), len(trained)), dtype=np.bool_)
    for fit, train in enumerate(trained):
        masks[train, fit] = True
    return masks


def _accuracies(
    rows: Labeled, predicted: Int[np.ndarray, "rows fits"], scored: Sequence[RowNumbers]
) -> list[float]:
    hits = predicted == rows.labels[:, None]
    return [float(hits[of, fit].mean()) for fit, of in enumerate(scored)]


def _percent(accuracies: Sequence[float]) -> float:
    return round(100 * float(np.mean(accuracies)), 2)


def _outcome(
    scan: Sequence[float],
    predictions: Sequence[Int[np.ndarray, " rows"]],
    test: Labeled,
    strengths: Sequence[float],
) -> Outcome:
    best = int(np.argmax(scan))
    accuracy = 100 * float((predictions[best] == test.labels).mean())
    return Outcome(scan[best], accuracy, predictions[best], (strengths[best],))
