"""The three designs of SentEval: which rows train, which choose the regularization, which test.

A task's splits decide its design, and every classifier offers all three. `nested`: stratified
folds inside stratified folds (MR, CR, SUBJ, MPQA; SentEval's InnerKFold). `folds_then_test`:
stratified folds of the training rows choose (TREC, MRPC; KFold). `dev_then_test`: a development
split chooses (SST2, SST5, SICK-E; Split).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int

FOLD_SEED = 1111
"""SentEval's seed; the folds of `nested` always use it as `random_state`."""


@dataclass(frozen=True)
class Labeled:
    """Rows with a class each.

    Attributes:
        features: One row per example.
        labels: Classes, numbered from 0 without a gap.
    """

    features: Float32[np.ndarray, "rows dim"]
    labels: Int[np.ndarray, " rows"]


def joined(first: Labeled, second: Labeled) -> Labeled:
    """The rows of the first, then the rows of the second."""
    return Labeled(
        np.concatenate([first.features, second.features]),
        np.concatenate([first.labels, second.labels]),
    )


@dataclass(frozen=True)
class Outcome:
    """The result of a classifier under a design.

    Attributes:
        dev: Accuracy x 100 on the rows that chose the regularization; with folds, the mean over
            folds.
        test: Accuracy x 100 on the test rows. Under `nested`, the mean over the outer folds, each
            rounded to two decimals as in SentEval.
        predictions: The predicted class of each test row; under `nested`, every row is tested
            once.
        chosen: The chosen regularization; under `nested`, one value per outer fold.
    """

    dev: float
    test: float
    predictions: Int[np.ndarray, " rows"]
    chosen: tuple[float, ...]


RowNumbers = Int[np.ndarray, " _"]


def stratified_folds(
    labels: Int[np.ndarray, " rows"], folds: int, seed: int = FOLD_SEED
) -> list[tuple[RowNumbers, RowNumbers]]:
    """Split rows by scikit-learn's shuffled `StratifiedKFold`.

    Args:
        labels: The class of each row, from 0 without a gap.
        folds: The number of folds, 2 or more.
        seed: The `random_state`.

    Returns:
        The training rows and the held-out rows of each fold, both in ascending order.
    """
    # This import is not at the top: it takes half a second, which other workers need not spend.
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    return list(splitter.split(labels, labels))
