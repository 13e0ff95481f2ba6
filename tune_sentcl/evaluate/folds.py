"""Stratified folds, row for row those of SentEval."""

import numpy as np
from jaxtyping import Int

from tune_sentcl.errors import DataError, Fault
from tune_sentcl.evaluate.designs import FOLD_SEED

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
