"""The protocol `logreg`: SentEval's scikit-learn mode, with every fit brought to its minimum.

Nothing in it is random but the folds, whose seed is fixed. SentEval leaves scikit-learn at its
default tolerance, where float32 and float64 features choose different regularizations; fits at
their minimum have one answer.
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
    check_labeled,
    stratified_folds,
)

SPLIT_STRENGTHS = tuple(2.0**power for power in range(-2, 4))
"""Values of `C` where nested folds or a development split choose."""
FOLD_STRENGTHS = tuple(2.0**power for power in range(-1, 6))
"""Values of `C` where the folds of a training split choose."""

_Folds = list[tuple[RowNumbers, RowNumbers]]
"""The rows to train on, and those held out."""


@dataclass(frozen=True)
class LogisticClassifier:
    """A `Classifier`.

    The scores that choose are rounded to two decimals, as SentEval rounds them; of equals the
    smallest `C` wins.

    Attributes:
        device: Where to fit, as torch names it.
    """

    device: str = "cpu"

    def nested(self, rows: Labeled, folds: int) -> Outcome:
        """Choose by folds in each fold; refit on what lies outside the fold, and test on it."""
        check_labeled({"rows": rows})
        outer = stratified_folds(rows.labels, folds)
        inner = [
            (train[fit], train[dev])
            for train, _ in outer
            for fit, dev in stratified_folds(rows.labels[train], folds)
        ]
        return self._nested(rows, outer, inner)

    def nested_in(self, rows: Labeled, dealt: Int[np.ndarray, " rows"]) -> Outcome:
        """Score folds that were dealt: of the others each chooses in turn, the rest is learned.

        Args:
            rows: Their classes are each in three folds or more.
            dealt: The fold of each row, from 0 without a gap.
        """
        check_labeled({"rows": rows})
        folds = range(int(dealt.max()) + 1)
        outer = [(np.flatnonzero(dealt != out), np.flatnonzero(dealt == out)) for out in folds]
        inner = [
            (np.flatnonzero((dealt != out) & (dealt != dev)), np.flatnonzero(dealt == dev))
            for out in folds
            for dev in folds
            if dev != out
        ]
        return self._nested(rows, outer, inner)

    def _nested(self, rows: Labeled, outer: _Folds, inner: _Folds) -> Outcome:
        """Score the outer folds, each under what its part of the inner ones has chosen."""
        count, each = len(outer), len(inner) // len(outer)
        masks = _masks(rows, [train for train, _ in outer + inner])
        fits = LogisticFits(rows.features, rows.labels, self.device)
        scan, found = [], []
        for weights in fits.path(masks, SPLIT_STRENGTHS):
            predicted = fits.predict(weights, fits.rows)
            found.append(predicted[:, :count])
            reached = _accuracies(rows, predicted[:, count:], [dev for _, dev in inner])
            scan.append([_percent(reached[at : at + each]) for at in range(0, len(inner), each)])
        best = np.argmax(scan, axis=0)
        refits = np.stack([found[choice][:, fold] for fold, choice in enumerate(best)], axis=1)
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
        """Choose by folds; refit on all training rows."""
        check_labeled({"train": train, "test": test})
        parts = stratified_folds(train.labels, folds)
        masks = _masks(train, [np.arange(len(train.labels)), *(fit for fit, _ in parts)])
        fits = LogisticFits(train.features, train.labels, self.device)
        tested = fits.place(test.features)
        scan, found = [], []
        for weights in fits.path(masks, FOLD_STRENGTHS):
            predicted = fits.predict(weights[:, :, 1:], fits.rows)
            scan.append(_percent(_accuracies(train, predicted, [dev for _, dev in parts])))
            found.append(fits.predict(weights[:, :, :1], tested)[:, 0])
        return _outcome(scan, found, test, FOLD_STRENGTHS)

    def dev_then_test(self, train: Labeled, dev: Labeled, test: Labeled) -> Outcome:
        """Choose on `dev`; no refit is needed, for the choice was fitted to all training rows."""
        check_labeled({"train": train, "dev": dev, "test": test})
        fits = LogisticFits(train.features, train.labels, self.device)
        chosen_on, tested = fits.place(dev.features), fits.place(test.features)
        scan, found = [], []
        for weights in fits.path(_masks(train, [np.arange(len(train.labels))]), SPLIT_STRENGTHS):
            predicted = fits.predict(weights, chosen_on)
            scan.append(_percent(_accuracies(dev, predicted, [np.arange(len(dev.labels))])))
            found.append(fits.predict(weights, tested)[:, 0])
        return _outcome(scan, found, test, SPLIT_STRENGTHS)


def _masks(rows: Labeled, trained: Sequence[RowNumbers]) -> Bool[np.ndarray, "rows fits"]:
    masks = np.zeros((len(rows.labels), len(trained)), dtype=np.bool_)
    for fit, train in enumerate(trained):
        masks[train, fit] = True
    return masks


def _accuracies(
    rows: Labeled, predicted: Int[np.ndarray, "rows fits"], scored: Sequence[RowNumbers]
) -> list[float]:
    """Each fit's, on the rows that it is scored on."""
    hits = predicted == rows.labels[:, None]
    return [float(hits[of, fit].mean()) for fit, of in enumerate(scored)]


def _percent(accuracies: Sequence[float]) -> float:
    return round(100 * float(np.mean(accuracies)), 2)


def _outcome(
    scan: Sequence[float],
    found: Sequence[Int[np.ndarray, " rows"]],
    test: Labeled,
    strengths: Sequence[float],
) -> Outcome:
    best = int(np.argmax(scan))
    accuracy = 100 * float((found[best] == test.labels).mean())
    return Outcome(scan[best], accuracy, found[best], (strengths[best],))
