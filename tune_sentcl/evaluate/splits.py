"""How labeled rows become a score: which are trained on, which choose, which test.

SentEval has three designs, told apart by what splits a task comes with. Every classifier offers
the three, so that a task never knows which classifier scores it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int

from tune_sentcl.errors import DataError, Fault

FOLD_SEED = 1111
"""SentEval's seed, and the `random_state` of nested folds whatever seed the classifier has."""


@dataclass(frozen=True)
class Labeled:
    """Rows with a class each.

    Attributes:
        features: One row an example.
        labels: Classes, numbered from 0 without a gap.
    """

    features: Float32[np.ndarray, "rows dim"]
    labels: Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class Outcome:
    """What a classifier reached under a design.

    Attributes:
        dev: Accuracy x 100 on the rows that chose the regularization: the mean over folds where
            folds chose it.
        test: Accuracy x 100 on the test rows: under `nested`, the mean over the outer folds, each
            rounded to two decimals as SentEval rounds it.
        predictions: The class predicted for each test row, in the order of the test rows; under
            `nested`, for each row when it was tested.
        chosen: The regularization chosen: one a design, one an outer fold under `nested`.
    """

    dev: float
    test: float
    predictions: Int[np.ndarray, " rows"]
    chosen: tuple[float, ...]


@runtime_checkable
class Classifier(Protocol):
    """Chooses its regularization without the test rows, and is then scored on them."""

    def nested(self, rows: Labeled, folds: int) -> Outcome:
        """Stratified folds in stratified folds (MR, CR, SUBJ, MPQA; SentEval's InnerKFold)."""
        ...

    def folds_then_test(self, train: Labeled, test: Labeled, folds: int) -> Outcome:
        """Stratified folds of the training rows choose (TREC, MRPC; SentEval's KFold)."""
        ...

    def dev_then_test(self, train: Labeled, dev: Labeled, test: Labeled) -> Outcome:
        """A development split chooses (SST2, SST5, SICK-E; SentEval's Split)."""
        ...


def check_labeled(parts: Mapping[str, Labeled]) -> None:
    """Refuse rows that no classifier can learn from.

    Args:
        parts: By name; the first is trained on and says which classes there are.

    Raises:
        DataError: Lists what is wrong with each part.
    """
    train = next(iter(parts.values()))
    classes, dim = np.unique(train.labels).size, train.features.shape[1]
    faults = [
        Fault("classifier", name, value, rule, "Check the labels and the encoder.")
        for name, part in parts.items()
        for value, rule in _breaches(part, classes, dim)
    ]
    if faults:
        raise DataError(faults)


def _breaches(part: Labeled, classes: int, dim: int) -> Iterator[tuple[str, str]]:
    rows, width = part.features.shape
    if rows == 0 or width != dim:
        yield f"{rows} rows of width {width}", f"one row or more of width {dim} must be given"
    outside = part.labels[(part.labels < 0) | (part.labels >= classes)]
    if classes < 2:
        yield f"{classes} classes", "there must be two classes or more"
    elif outside.size:
        yield f"class {outside[0]}", f"the {classes} classes must be numbered from 0"
    bad = np.flatnonzero(~np.isfinite(part.features).all(axis=1))
    if bad.size:
        yield f"row {bad[0]}", "features must be finite"


RowNumbers = Int[np.ndarray, " _"]


def stratified_folds(
    labels: Int[np.ndarray, " rows"], folds: int, seed: int = FOLD_SEED
) -> list[tuple[RowNumbers, RowNumbers]]:
    """Split rows as scikit-learn's shuffled `StratifiedKFold` does.

    Args:
        labels: The class of each row, from 0 without a gap.
        folds: How many, 2 or more.
        seed: Its `random_state`.

    Returns:
        The rows to train on and those held out, both rising; each row is held out once.

    Raises:
        DataError: Some class has fewer rows than there are folds.
    """
    counts = np.bincount(labels)
    faults = [
        Fault(
            "classifier",
            f"rows of class {label}",
            str(counts[label]),
            f"every class must have a row for each of the {folds} folds",
            "Use fewer folds.",
        )
        for label in np.flatnonzero(counts < folds)
    ]
    if faults:
        raise DataError(faults)
    # Here, for the import costs a worker that scores no classifier half a second.
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    return list(splitter.split(labels, labels))
