"""Labeled sentences of the user's own: whose rows choose, whose are predicted, and macro F1."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from own_samples import write_labeled
from sklearn.metrics import accuracy_score, f1_score

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import LabeledTask
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.logreg import LogisticClassifier
from tune_sentcl.evaluate.splits import Labeled
from tune_sentcl.evaluate.transfer import score_labeled
from tune_sentcl.shapes import EmbeddingMatrix

Rows = list[tuple[str, ...]]
Scores = dict[tuple[str, str], float]
FIT = LogisticClassifier()


def encode(sentences: Sequence[str]) -> EmbeddingMatrix:
    """The text names its class and its draw: `2 17`."""
    centers = np.random.default_rng(5).normal(size=(4, 6))
    rows = [
        centers[int(text.split()[0])] + np.random.default_rng(int(text.split()[1])).normal(size=6)
        for text in sentences
    ]
    return np.asarray(rows, np.float32)


def rows(count: int, first: int = 0) -> Rows:
    return [(f"{n % 3} {first + n}", f"class {n % 3}") for n in range(count)]


def labeled(part: Rows) -> Labeled:
    texts = [text for text, *_ in part]
    return Labeled(encode(texts), np.array([int(text.split()[0]) for text in texts]))


TRAIN, DEV, TEST = rows(60), rows(41, 100), rows(50, 200)


def measured(path: Path) -> Scores:
    measurements: Scores = {}
    for task in read_own(OwnSource("mine", str(path))):
        assert isinstance(task, LabeledTask)
        table = SentenceTable(encode, [text for part in task.parts for text in part.first])
        scores = list(score_labeled(table, task))
        assert [(score.metric, score.split) for score in scores] == list(task.offers)
        for score in scores:
            assert score.value is not None and score.version == task.version
            measurements[score.metric, score.split] = score.value
    return measurements


def both(part: Rows, predicted: np.ndarray, split: str) -> Scores:
    gold = labeled(part).labels
    return {
        ("accuracy", split): 100 * float(accuracy_score(gold, predicted)),
        ("macro_f1", split): 100 * float(f1_score(gold, predicted, average="macro")),
    }


@pytest.mark.parametrize("tested", [True, False])
def test_dev_rows_choose(tmp_path: Path, tested: bool) -> None:
    expected: Scores = {}
    for split, part in [("train", TRAIN), ("dev", DEV), ("test", TEST)][: 2 + tested]:
        write_labeled(tmp_path / f"{split}.tsv", "text label", part)
        if split != "train":
            outcome = FIT.dev_then_test(labeled(TRAIN), labeled(DEV), labeled(part))
            expected |= both(part, outcome.predictions, split)
    # Accuracies that choose are rounded to two decimals, as SentEval rounds them.
    assert measured(tmp_path) == pytest.approx(expected, abs=0.0051)


def test_folds_of_the_rows_to_learn_from_choose(tmp_path: Path) -> None:
    rows = [(*row, "train") for row in TRAIN] + [(*row, "test") for row in TEST]
    path = write_labeled(tmp_path / "all.tsv", "text label split", rows)
    outcome = FIT.folds_then_test(labeled(TRAIN), labeled(TEST), 10)
    expected = {("accuracy", "dev"): outcome.dev, **both(TEST, outcome.predictions, "test")}
    assert measured(path) == pytest.approx(expected)


def test_a_single_file_has_folds_of_its_own(tmp_path: Path) -> None:
    outcome = FIT.nested(labeled(TRAIN), 10)
    expected = {**both(TRAIN, outcome.predictions, "dev"), ("accuracy", "dev"): outcome.test}
    path = write_labeled(tmp_path / "a.tsv", "text label", TRAIN)
    assert measured(path) == pytest.approx(expected)
