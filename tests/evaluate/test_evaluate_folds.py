"""Folds are scikit-learn's; a class too small for them is an error."""

import numpy as np
import pytest

from tune_sentcl.errors import DataError
from tune_sentcl.evaluate.splits import stratified_folds


def test_the_seed_is_that_of_senteval() -> None:
    from sklearn.model_selection import StratifiedKFold

    labels = np.arange(40) % 3
    wanted = StratifiedKFold(4, shuffle=True, random_state=1111).split(np.zeros(40), labels)
    for (train, test), (wanted_train, wanted_test) in zip(
        stratified_folds(labels, 4), wanted, strict=True
    ):
        assert train.tolist() == wanted_train.tolist()
        assert test.tolist() == wanted_test.tolist()


def test_every_class_that_is_too_small_is_named() -> None:
    with pytest.raises(DataError) as caught:
        stratified_folds(np.array([0] * 4 + [1] * 5 + [2] * 2), 5)
    assert [(fault.key, fault.value) for fault in caught.value.faults] == [
        ("rows of class 0", "4"),
        ("rows of class 2", "2"),
    ]
    assert "each of the 5 folds" in str(caught.value)
