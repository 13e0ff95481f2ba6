"""SentEval's own classifier: softmax regression by minibatches, stopped early on held-out rows.

It reproduces these traits of SentEval: numpy and torch are seeded before each fit. The counter of
rounds without improvement is never reset. The rows that choose the weight decay also stop the fit.
Accuracies are rounded to two decimals before the best is chosen, and the smallest decay wins a
tie. All fits of a task are trained together (`batched_classifiers.py`).

Source: facebookresearch/SentEval, senteval/tools/classifier.py and validation.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int
from torch import Tensor

from tune_sentcl.evaluate.batched_classifiers import (
    Fitted,
    Problem,
    Recipe,
    Split,
    adam,
    fit_batched,
    rmsprop,
    with_bias,
)
from tune_sentcl.evaluate.splits import (
    FOLD_SEED,
    Labeled,
    Outcome,
    joined,
    stratified_folds,
)

DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)
RECIPES = {
    "10fold": Recipe(adam, batch=64, passes=4, patience=5, limit=200),
    "5fold": Recipe(rmsprop, batch=128, passes=2, patience=3, limit=200),
}
"""SentEval's settings "comparable to the literature" (10fold) and "for prototyping" (5fold)."""
_HELD_OUT = 0.05


@dataclass(frozen=True)
class SentEvalClassifier:
    """A classifier with the three designs of the module `splits`.

    Attributes:
        protocol: The settings; the caller passes the number of folds.
        seed: Draws the first weights, the orders, the held-out rows and the folds of
            `folds_then_test`. The folds of `nested` always have SentEval's seed.
        device: The device to train on.
    """

    protocol: Literal["10fold", "5fold"]
    seed: int = FOLD_SEED
    device: str = "cpu"

    def nested(self, rows: Labeled, folds: int) -> Outcome:
        """Test each outer fold by a fit on the others, whose inner folds choose the decay."""
        problem = _problem(rows, self.device)
        outer = stratified_folds(rows.labels, folds)
        inner = [
            Split(train[fit], train[dev])
            for train, _ in outer
            for fit, dev in stratified_folds(rows.labels[train], folds)
        ]
        accuracies = _accuracies(self._scan(problem, inner), inner)
        dev = [_means(table) for table in np.split(accuracies, len(outer))]
        chosen = [DECAYS[int(np.argmax(means))] for means in dev]
        splits = [_held_out(train, self.seed) for train, _ in outer]
        refits = self._fit(problem, splits, np.c_[chosen])
        predictions = np.empty_like(rows.labels)
        test = []
        for (_, rows_out), fitted in zip(outer, refits, strict=True):
            predictions[rows_out] = _predict(rows.features[rows_out], fitted.weights[0])
            hits = (predictions[rows_out] == rows.labels[rows_out]).sum()
            test.append(_percent(int(hits), len(rows_out)))
        best = float(np.mean([means.max() for means in dev]))
        return Outcome(best, float(np.mean(test)), predictions, tuple(chosen))

    def folds_then_test(self, train: Labeled, test: Labeled, folds: int) -> Outcome:
        """Choose the decay by folds, then refit; a twentieth of the rows is held out to stop."""
        problem = _problem(train, self.device)
        splits = [Split(fit, dev) for fit, dev in stratified_folds(train.labels, folds, self.seed)]
        dev = _means(_accuracies(self._scan(problem, splits), splits))
        chosen = DECAYS[int(np.argmax(dev))]
        everything = _held_out(np.arange(len(train.labels)), self.seed)
        refit = self._fit(problem, [everything], np.array([[chosen]]))[0]
        return _outcome(float(dev.max()), chosen, refit.weights[0], test)

    def dev_then_test(self, train: Labeled, dev: Labeled, test: Labeled) -> Outcome:
        """Choose the decay on `dev`, which also stops the fits.

        SentEval fits again with the chosen decay, the same seed and the same rows, which would
        give the chosen fit again, so nothing is refitted here.
        """
        both = joined(train, dev)
        numbers = np.arange(len(both.labels))
        split = Split(numbers[: len(train.labels)], numbers[len(train.labels) :])
        fitted = self._scan(_problem(both, self.device), [split])[0]
        reached = [_percent(int(hits), len(dev.labels)) for hits in fitted.best]
        best = int(np.argmax(reached))
        return _outcome(max(reached), DECAYS[best], fitted.weights[best], test)

    def _scan(self, problem: Problem, splits: Sequence[Split]) -> list[Fitted]:
        return self._fit(problem, splits, np.tile(DECAYS, (len(splits), 1)))

    def _fit(
        self, problem: Problem, splits: Sequence[Split], decays: Float64[np.ndarray, "splits _"]
    ) -> list[Fitted]:
        return fit_batched(problem, splits, decays, RECIPES[self.protocol], self.seed)


def _problem(rows: Labeled, device: str) -> Problem:
    labels = torch.from_numpy(rows.labels).to(device, torch.int64)

    def judge(
        outputs: Float32[Tensor, "rows classes decays"], of: Int[Tensor, " rows"]
    ) -> Float64[Tensor, " decays"]:
        hits: Float64[Tensor, " decays"] = (outputs.argmax(1) == labels[of, None]).sum(0).double()
        return hits

    targets = torch.nn.functional.one_hot(labels).float()
    return Problem(with_bias(rows.features, device), targets, _cross_entropy_slope, judge)


def _cross_entropy_slope(
    outputs: Float32[Tensor, "splits classes decays batch"],
    targets: Float32[Tensor, "splits classes 1 batch"],
) -> Float32[Tensor, "splits classes decays batch"]:
    return outputs.softmax(1).sub_(targets)


def _held_out(rows: Int[np.ndarray, " rows"], seed: int) -> Split:
    order = np.random.RandomState(seed).permutation(len(rows))
    num_held_out = int(_HELD_OUT * len(rows))
    return Split(rows[order[num_held_out:]], rows[order[:num_held_out]], drawn=len(rows))


def _accuracies(
    fitted: Sequence[Fitted], splits: Sequence[Split]
) -> Float64[np.ndarray, "splits decays"]:
    return np.stack(
        [fit.best.numpy() / len(split.dev) for fit, split in zip(fitted, splits, strict=True)]
    )


def _means(accuracies: Float64[np.ndarray, "splits decays"]) -> Float64[np.ndarray, " decays"]:
    # Means often lie halfway between two hundredths. Like SentEval, this code therefore sums in a
    # fixed order and rounds by numpy here, but by Python in `_percent`.
    return np.array([round(100 * np.mean(column), 2) for column in accuracies.T.copy()])


def _percent(hits: int, rows: int) -> float:
    return round(100 * (hits / rows), 2)


def _predict(
    features: Float32[np.ndarray, "rows dim"], weights: Float32[Tensor, "classes _"]
) -> Int[np.ndarray, " rows"]:
    classes: Int[np.ndarray, " rows"] = (with_bias(features, "cpu") @ weights.T).argmax(1).numpy()
    return classes


def _outcome(
    dev: float, chosen: float, weights: Float32[Tensor, "classes _"], test: Labeled
) -> Outcome:
    predictions = _predict(test.features, weights)
    hits = int((predictions == test.labels).sum())
    return Outcome(dev, _percent(hits, len(test.labels)), predictions, (chosen,))
