"""Transfer scores and own labeled sentences, against the classifiers used by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float32
from own_samples import write_labeled
from scipy import stats
from senteval_loops import loop_relatedness
from sklearn.metrics import accuracy_score, f1_score

from tune_sentcl.config import ProtocolName
from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.task import ClassifiedRows, StsSplit, StsSubset, StsTask, TransferTask
from tune_sentcl.data.tasks.evaluation_sets import RatedTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import LabeledTask
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate import transfer
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.logreg import LogisticClassifier
from tune_sentcl.evaluate.relatedness import Rated, score_relatedness
from tune_sentcl.evaluate.senteval_classifier import SentEvalClassifier
from tune_sentcl.evaluate.splits import Labeled, Outcome
from tune_sentcl.evaluate.transfer import Classifier, score_labeled, score_rated, score_transfer
from tune_sentcl.score import Score
from tune_sentcl.seeding import stream
from tune_sentcl.shapes import EmbeddingMatrix

TRANSFER: tuple[ProtocolName, ...] = (
    "logreg-10fold",
    "senteval-10fold",
    "senteval-5fold",
    "scl-paper-compat",
)


def blind(sentences: list[str]) -> EmbeddingMatrix:
    """A vector of its own for each sentence, which tells nothing of its class."""
    rows = [stream(0, text).standard_normal(6) for text in sentences]
    return np.array(rows, dtype=np.float32)


def rows(name: str, count: int, classes: int = 2) -> ClassifiedRows:
    labels = tuple(int(label) for label in stream(1, name).permutation(np.arange(count) % classes))
    texts = tuple(f"{label} {name} {row}" for row, label in enumerate(labels))
    return ClassifiedRows(texts, None, labels)


def pairs(name: str, count: int) -> ClassifiedRows:
    """The sentences of a pair are of one class where its label is 1."""
    labels = tuple(int(label) for label in stream(1, name).permutation(np.arange(count) % 3 > 0))
    first = tuple(f"{row % 2} {name} left {row}" for row in range(count))
    second = tuple(
        f"{row % 2 if label else 1 - row % 2} {name} right {row}"
        for row, label in enumerate(labels)
    )
    return ClassifiedRows(first, second, labels)


MR = TransferTask("MR", rows("mr", 80))
TREC = TransferTask("TREC", rows("trec", 120, 6), test=rows("trec test", 42, 6))
SST5 = TransferTask("SST5", rows("a", 100, 5), rows("b", 35, 5), rows("c", 55, 5))
MRPC = TransferTask("MRPC", pairs("mrpc", 90), test=pairs("mrpc test", 48))
SICKE = TransferTask("SICK-E", pairs("d", 90), pairs("e", 33), pairs("f", 45))
TASKS = (MR, TREC, SST5, MRPC, SICKE)


def table(task: TransferTask) -> SentenceTable:
    texts = [t for part in task.parts for side in (part.first, part.second or ()) for t in side]
    return SentenceTable(blind, texts)


def scored(task: TransferTask, protocol: ProtocolName, device: str = "cpu") -> list[Score]:
    seed = None if protocol == "logreg-10fold" else 1111
    return list(score_transfer(table(task), task, protocol, seed, device))


def features(part: ClassifiedRows) -> Float32[np.ndarray, "rows dim"]:
    """Reference: what a row of `blind` sentences is learned from, one row at a time."""
    left = blind(list(part.first))
    if part.second is None:
        return left
    right = blind(list(part.second))
    joined = [[*np.abs(u - v), *(u * v)] for u, v in zip(left, right, strict=True)]
    return np.array(joined, dtype=np.float32)


def labeled(part: ClassifiedRows) -> Labeled:
    return Labeled(features(part), np.array(part.labels))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("protocol", TRANSFER)
def test_scores_are_those_of_the_classifier(task: TransferTask, protocol: ProtocolName) -> None:
    folds = 10 if protocol.endswith("10fold") else 5
    classifier: Classifier = (
        LogisticClassifier()
        if protocol == "logreg-10fold"
        else SentEvalClassifier("10fold" if folds == 10 else "5fold", 1111)
    )
    parts = [labeled(part) for part in task.parts]
    expected: Outcome
    if task.test is None:
        expected = classifier.nested(parts[0], folds)
    elif task.dev is None:
        expected = classifier.folds_then_test(parts[0], parts[1], folds)
    else:
        expected = classifier.dev_then_test(parts[0], parts[1], parts[2])
    scores = scored(task, protocol)
    dev, test, *more = scores
    assert [(s.split, s.metric) for s in scores] == [
        ("dev", "accuracy"),
        ("test", "accuracy"),
        *([("test", "f1")] if task.name == "MRPC" else []),
    ]
    sizes = {"MR": [80, 80], "TREC": [120, 42], "SST5": [35, 55], "MRPC": [90, 48, 48]}
    assert [s.n for s in scores] == sizes.get(task.name, [33, 45])
    seed = None if protocol == "logreg-10fold" else 1111
    assert {(s.suite, s.task, s.protocol, s.classifier_seed, s.subset) for s in scores} == {
        ("transfer", task.name, protocol, seed, None)
    }
    assert (dev.value, test.value) == (expected.dev, expected.test)
    assert 0 < expected.test < 100
    if task.name == "MRPC":
        (f1,) = more
        gold = parts[-1].labels
        assert f1.value == pytest.approx(100 * f1_score(gold, expected.predictions), abs=1e-9)
        assert f1.value != test.value


def test_the_seed_is_the_classifiers() -> None:
    sentences = table(MRPC)
    other = list(score_transfer(sentences, MRPC, "senteval-5fold", 7))
    assert {s.classifier_seed for s in other} == {7}
    train, test = map(labeled, MRPC.parts)
    by_hand = SentEvalClassifier("5fold", 7).folds_then_test(train, test, 5)
    assert [s.value for s in other][:2] == [by_hand.dev, by_hand.test]


@pytest.mark.parametrize("protocol", ["logreg-10fold", "senteval-10fold", "senteval-5fold"])
def test_classifiers_are_trained_on_the_device(
    protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []
    made = transfer._classifier

    def noted(name: ProtocolName, seed: int | None, device: str) -> tuple[Classifier, int]:
        classifier, _ = made(name, seed, device)
        assert isinstance(classifier, LogisticClassifier | SentEvalClassifier)
        devices.append(classifier.device)
        return made(name, seed, "cpu")

    monkeypatch.setattr(transfer, "_classifier", noted)
    scored(MR, protocol, "cuda:3")
    assert devices == ["cuda:3"]


def _rated(split: StsSplit, n: int) -> StsTask:
    gold = tuple(float(score) for score in stream(2, split).integers(0, 6, n))
    left, right = (tuple(f"{split} {side} {row}" for row in range(n)) for side in "ab")
    return StsTask("STS-B", split, (StsSubset("STS-B", left, right, gold),))


def test_relatedness_is_that_of_the_regression() -> None:
    task = RatedTask(_rated("train", 64), _rated("dev", 20), _rated("test", 30))
    subsets = [part.subsets[0] for part in (task.train, task.dev, task.test)]
    texts = [t for s in subsets for side in (s.sentences1, s.sentences2) for t in side]
    found = list(score_rated(SentenceTable(blind, texts), task, 1112, "cpu"))
    rows = [ClassifiedRows(s.sentences1, s.sentences2, (0,) * len(s)) for s in subsets]
    train, dev, test = (
        Rated(features(r), np.array(s.gold)) for r, s in zip(rows, subsets, strict=True)
    )
    expected = score_relatedness(train, dev, test, 1112)
    assert [(s.split, s.metric, s.value, s.n) for s in found] == [
        ("dev", "pearson", expected.dev, 20),
        ("test", "pearson", expected.pearson, 30),
        ("test", "spearman", expected.spearman, 30),
    ]
    assert {(s.suite, s.task, s.protocol, s.classifier_seed) for s in found} == {
        ("sts", "STS-B", "relatedness", 1112)
    }


def regression_rows(count: int, seed: int) -> Rated:
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, 6)).astype(np.float32)
    truth = features @ np.linspace(-1, 1, 6) + 0.7 * generator.standard_normal(count)
    return Rated(features, np.clip(2.7 + truth, 0, 5).round(1))


def test_the_regression_equals_the_loop() -> None:
    train, dev, test = (regression_rows(n, n) for n in (70, 40, 30))
    found = score_relatedness(train, dev, test, seed=7)
    best, _, predictions = loop_relatedness(train, dev, test, seed=7)
    assert found.predictions == pytest.approx(predictions, abs=1e-4)
    assert found.dev == pytest.approx(100 * best, abs=1e-3)
    expected = 100 * stats.pearsonr(predictions, test.scores).statistic
    assert found.pearson == pytest.approx(expected, abs=1e-3)
    expected = 100 * stats.spearmanr(predictions, test.scores).statistic
    assert found.spearman == pytest.approx(expected, abs=0.1)


def test_scores_that_do_not_vary_have_no_correlation() -> None:
    good = regression_rows(20, 0)
    flat = replace(good, scores=np.full(20, 3.0))
    with pytest.raises(NonFiniteError, match="Pearson of dev"):
        score_relatedness(good, flat, good)


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


def own_rows(count: int, first: int = 0) -> Rows:
    return [(f"{n % 3} {first + n}", f"class {n % 3}") for n in range(count)]


def own_labeled(part: Rows) -> Labeled:
    texts = [text for text, *_ in part]
    return Labeled(encode(texts), np.array([int(text.split()[0]) for text in texts]))


TRAIN, DEV, TEST = own_rows(60), own_rows(41, 100), own_rows(50, 200)


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
    gold = own_labeled(part).labels
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
            outcome = FIT.dev_then_test(own_labeled(TRAIN), own_labeled(DEV), own_labeled(part))
            expected |= both(part, outcome.predictions, split)
    # Accuracies that choose are rounded to two decimals, as SentEval rounds them.
    assert measured(tmp_path) == pytest.approx(expected, abs=0.0051)


def test_folds_of_the_rows_to_learn_from_choose(tmp_path: Path) -> None:
    rows = [(*row, "train") for row in TRAIN] + [(*row, "test") for row in TEST]
    path = write_labeled(tmp_path / "all.tsv", "text label split", rows)
    outcome = FIT.folds_then_test(own_labeled(TRAIN), own_labeled(TEST), 10)
    expected = {("accuracy", "dev"): outcome.dev, **both(TEST, outcome.predictions, "test")}
    assert measured(path) == pytest.approx(expected)


def test_a_single_file_has_folds_of_its_own(tmp_path: Path) -> None:
    outcome = FIT.nested(own_labeled(TRAIN), 10)
    expected = {**both(TRAIN, outcome.predictions, "dev"), ("accuracy", "dev"): outcome.test}
    path = write_labeled(tmp_path / "a.tsv", "text label", TRAIN)
    assert measured(path) == pytest.approx(expected)
