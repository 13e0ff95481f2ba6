"""Labeled sentences of the user's own against scikit-learn: classifiers, accuracy and macro F1."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_samples import write_labeled
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import LabeledTask
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.labeled import macro_f1, score_labeled
from tune_sentcl.evaluate.logreg import FOLD_STRENGTHS, SPLIT_STRENGTHS, LogisticClassifier
from tune_sentcl.evaluate.splits import Labeled
from tune_sentcl.shapes import EmbeddingMatrix

Rows = list[tuple[str, ...]]
Found = dict[tuple[str, str], float]


def encode(sentences: list[str]) -> EmbeddingMatrix:
    """The text names its class and its draw: `2 17`."""
    centers = np.random.default_rng(5).normal(size=(4, 6))
    rows = [
        centers[int(text.split()[0])] + np.random.default_rng(int(text.split()[1])).normal(size=6)
        for text in sentences
    ]
    return np.asarray(rows, np.float32)


def rows(count: int, first: int = 0, classes: int = 3) -> Rows:
    return [(f"{n % classes} {first + n}", f"class {n % classes}") for n in range(count)]


def arrays(part: Rows) -> tuple[np.ndarray, np.ndarray]:
    x = encode([text for text, *_ in part]).astype(np.float64)
    return x, np.array([int(text.split()[0]) for text, *_ in part])


def fit(strength: float, part: tuple[np.ndarray, np.ndarray]) -> LogisticRegression:
    model = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-9, max_iter=1000)
    return model.fit(*part)


def measured(path: Path) -> Found:
    found: Found = {}
    for task in read_own(OwnSource("mine", str(path))):
        assert isinstance(task, LabeledTask)
        table = SentenceTable(encode, [text for part in task.parts for text in part.first])
        scores = list(score_labeled(table, task))
        assert [(score.metric, score.split) for score in scores] == list(task.offers)
        for score in scores:
            assert score.value is not None and score.version == task.version
            found[score.metric, score.split] = score.value
    return found


def told(gold: np.ndarray, said: np.ndarray, split: str) -> Found:
    return {
        ("accuracy", split): 100 * float(accuracy_score(gold, said)),
        ("macro_f1", split): 100 * float(f1_score(gold, said, average="macro")),
    }


def same(ours: Found, theirs: Found) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        # Accuracies that choose are rounded to two decimals, as SentEval rounds them.
        assert ours[key] == pytest.approx(value, abs=0.0051), key


@pytest.mark.parametrize("tested", [True, False])
def test_dev_rows_choose(tmp_path: Path, tested: bool) -> None:
    parts = {"train": rows(60), "dev": rows(41, 100)}
    if tested:
        parts["test"] = rows(50, 200)
    for split, part in parts.items():
        write_labeled(tmp_path / f"{split}.tsv", "text label", part)
    train, (x, y) = arrays(parts["train"]), arrays(parts["dev"])
    models = [fit(strength, train) for strength in SPLIT_STRENGTHS]
    best = models[int(np.argmax([round(100 * m.score(x, y), 2) for m in models]))]
    expected = told(y, best.predict(x), "dev")
    if tested:
        x, y = arrays(parts["test"])
        expected |= told(y, best.predict(x), "test")
    same(measured(tmp_path), expected)


def test_folds_of_the_rows_to_learn_from_choose(tmp_path: Path) -> None:
    train, test = rows(60), rows(50, 200)
    both = [(*row, "train") for row in train] + [(*row, "test") for row in test]
    path = write_labeled(tmp_path / "all.tsv", "text label split", both)
    x, y = arrays(train)
    splits = list(StratifiedKFold(10, shuffle=True, random_state=1111).split(x, y))
    means = [
        round(100 * np.mean([fit(c, (x[a], y[a])).score(x[b], y[b]) for a, b in splits]), 2)
        for c in FOLD_STRENGTHS
    ]
    best = fit(FOLD_STRENGTHS[int(np.argmax(means))], (x, y))
    xt, yt = arrays(test)
    expected = {("accuracy", "dev"): max(means), **told(yt, best.predict(xt), "test")}
    same(measured(path), expected)


def _nested(part: Rows, folds: np.ndarray) -> Found:
    """Every fold predicted by what the others chose and learned; the mean of their accuracies."""
    x, y = arrays(part)

    def split(among: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        own = folds[among]
        return [(among[own != f], among[own == f]) for f in sorted(set(own.tolist()))]

    said, accuracies = np.empty_like(y), []
    for train, out in split(np.arange(len(y))):
        means = [
            round(
                100 * np.mean([fit(c, (x[a], y[a])).score(x[b], y[b]) for a, b in split(train)]), 2
            )
            for c in SPLIT_STRENGTHS
        ]
        said[out] = fit(SPLIT_STRENGTHS[int(np.argmax(means))], (x[train], y[train])).predict(
            x[out]
        )
        accuracies.append(round(100 * float((said[out] == y[out]).mean()), 2))
    return {**told(y, said, "dev"), ("accuracy", "dev"): float(np.mean(accuracies))}


def test_a_single_file_has_the_folds_of_logreg(tmp_path: Path) -> None:
    part = rows(40, classes=2)
    x, y = arrays(part)
    found = LogisticClassifier().nested(Labeled(x.astype(np.float32), y), 10)
    expected = {**told(y, found.predictions, "dev"), ("accuracy", "dev"): found.test}
    same(measured(write_labeled(tmp_path / "a.tsv", "text label", part)), expected)


def test_folds_that_were_dealt(tmp_path: Path) -> None:
    folds = np.random.default_rng(0).permutation(np.arange(45) % 4)
    part = rows(45)
    dealt = [(*row, f"f{fold}") for row, fold in zip(part, folds.tolist(), strict=True)]
    path = write_labeled(tmp_path / "a.tsv", "text label fold", dealt)
    same(measured(path), _nested(part, folds))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_macro_f1_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    gold, said = (np.array(side) for side in zip(*pairs, strict=True))
    assert macro_f1(gold, said) == pytest.approx(f1_score(gold, said, average="macro"), abs=1e-12)
