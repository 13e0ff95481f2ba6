"""Transfer tasks and custom labeled sentences: a linear classifier on frozen embeddings."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from tune_sentcl.data.task import ClassifiedRows, Design, StsTask, TransferTask
from tune_sentcl.data.tasks.evaluation_sets import RatedTask
from tune_sentcl.data.tasks.own_task import LabeledTask, OwnSplit
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.logreg import LogisticClassifier
from tune_sentcl.evaluate.relatedness import Rated, score_relatedness
from tune_sentcl.evaluate.senteval_classifier import SentEvalClassifier
from tune_sentcl.evaluate.splits import Labeled, Outcome, RowNumbers, joined
from tune_sentcl.score import Score
from tune_sentcl.shapes import EmbeddingMatrix

_FOLDS = 10

Classifier = LogisticClassifier | SentEvalClassifier


def score_transfer(
    sentences: SentenceTable,
    task: TransferTask,
    protocol: str,
    seed: int | None,
    device: str = "cpu",
) -> Iterator[Score]:
    """Score one task under one protocol.

    Args:
        sentences: Holds the task's sentences.
        task: The task.
        protocol: `logreg-10fold`, `senteval-10fold`, `senteval-5fold` or `scl-paper-compat`, which
            is `senteval-5fold` on the sets of the SCL paper.
        seed: The seed of a random classifier, else None.
        device: The device to train the classifiers on.

    Returns:
        Accuracy on dev (the folds or the split that chose the regularization) and on test; for
        MRPC also the F1 of the paraphrases.

    Raises:
        NonFiniteError: An embedding is not finite.
    """
    classifier, folds = _classifier(protocol, seed, device)
    parts = [_labeled(sentences, part, task.name) for part in task.parts]
    outcome = _outcome(classifier, task.design, parts, folds)
    chosen_on = parts[1] if task.design == "dev_then_test" else parts[0]
    tested = parts[-1]

    def score(split: Literal["dev", "test"], metric: str, value: float, rows: Labeled) -> Score:
        n = len(rows.labels)
        return Score(
            "transfer",
            task.name,
            split,
            metric,
            protocol,
            task.data,
            value,
            n,
            classifier_seed=seed,
        )

    yield score("dev", "accuracy", outcome.dev, chosen_on)
    yield score("test", "accuracy", outcome.test, tested)
    if task.name == "MRPC":
        yield score("test", "f1", _f1(tested.labels, outcome.predictions, "binary"), tested)


def _outcome(
    classifier: Classifier, design: Design, parts: Sequence[Labeled], folds: int
) -> Outcome:
    match design:
        case "nested":
            return classifier.nested(parts[0], folds)
        case "folds_then_test":
            return classifier.folds_then_test(parts[0], parts[1], folds)
        case "dev_then_test":
            return classifier.dev_then_test(parts[0], parts[1], parts[2])


def score_labeled(
    sentences: SentenceTable, task: LabeledTask, device: str = "cpu"
) -> Iterator[Score]:
    """Score one task.

    Args:
        sentences: Holds the task's sentences.
        task: The task.
        device: The torch device to fit on.

    Returns:
        Accuracy and macro F1 x 100 of each scored split. If folds of the training rows choose the
        regularization, the accuracy of these folds is also a score, as `dev`.

    Raises:
        NonFiniteError: An embedding is not finite.
    """
    classifier = LogisticClassifier(device)
    rows = _labeled(sentences, task.rows, task.name)
    dev, test = (
        None if part is None else _labeled(sentences, part, task.name)
        for part in (task.dev, task.test)
    )

    def scores(split: OwnSplit, accuracy: float, of: Labeled, said: Any = None) -> Iterator[Score]:
        named = {"accuracy": accuracy}
        if said is not None:
            named["macro_f1"] = _f1(of.labels, said, "macro")
        for metric, value in named.items():
            yield Score(
                "own",
                task.name,
                split,
                metric,
                "logreg-10fold",
                task.data,
                value,
                len(of.labels),
                version=task.version,
            )

    if dev is not None:
        # One call predicts the dev rows and the test rows, because no fit trains on either of
        # them.
        both = dev if test is None else joined(dev, test)
        outcome = classifier.dev_then_test(rows, dev, both)
        count = len(dev.labels)
        yield from scores("dev", outcome.dev, dev, outcome.predictions[:count])
        if test is not None:
            said = outcome.predictions[count:]
            yield from scores("test", 100 * float((said == test.labels).mean()), test, said)
    elif test is not None:
        outcome = classifier.folds_then_test(rows, test, _FOLDS)
        yield from scores("dev", outcome.dev, rows)
        yield from scores("test", outcome.test, test, outcome.predictions)
    else:
        outcome = classifier.nested(rows, _FOLDS)
        yield from scores(task.split, outcome.test, rows, outcome.predictions)


def score_rated(
    sentences: SentenceTable, task: RatedTask, seed: int, device: str
) -> Iterator[Score]:
    """Score SentEval's trained relatedness on STS-B or SICK-R.

    Yields Pearson on dev, which stops the training, and Pearson and Spearman on test.

    Raises:
        NonFiniteError: An embedding is not finite, or the predictions do not vary.
    """
    test_set = task.test
    train, dev, test = (_rated(sentences, part) for part in (task.train, task.dev, test_set))
    result = score_relatedness(train, dev, test, seed, device)

    def score(split: Literal["dev", "test"], metric: str, value: float, rows: Rated) -> Score:
        return Score(
            "sts",
            test_set.name,
            split,
            metric,
            "relatedness",
            test_set.data,
            value,
            len(rows.scores),
            classifier_seed=seed,
        )

    yield score("dev", "pearson", result.dev, dev)
    yield score("test", "pearson", result.pearson, test)
    yield score("test", "spearman", result.spearman, test)


def _classifier(protocol: str, seed: int | None, device: str) -> tuple[Classifier, int]:
    match protocol:
        case "logreg-10fold":
            return LogisticClassifier(device), _FOLDS
        case "senteval-10fold" | "senteval-5fold" | "scl-paper-compat":
            if seed is None:
                raise ValueError(f"{protocol} needs a seed for its classifier")
            if protocol == "senteval-10fold":
                return SentEvalClassifier("10fold", seed, device), 10
            return SentEvalClassifier("5fold", seed, device), 5
        case _:
            raise ValueError(f"{protocol} scores no transfer task")


def _labeled(sentences: SentenceTable, part: ClassifiedRows, name: str) -> Labeled:
    features = sentences.rows(part.first, name)
    if part.second is not None:
        features = _pair_features(features, sentences.rows(part.second, name))
    return Labeled(features, np.array(part.labels))


def _rated(sentences: SentenceTable, task: StsTask) -> Rated:
    (subset,) = task.subsets
    left, right = (
        sentences.rows(side, task.name) for side in (subset.sentences1, subset.sentences2)
    )
    return Rated(_pair_features(left, right), np.array(subset.gold, dtype=np.float64))


def _pair_features(
    left: EmbeddingMatrix, right: EmbeddingMatrix
) -> Float32[np.ndarray, "sentences both"]:
    return np.concatenate([np.abs(left - right), left * right], axis=1)


def _f1(gold: RowNumbers, said: RowNumbers, average: Literal["binary", "macro"]) -> float:
    """The F1 x 100 of class 1, or the mean over all classes in `gold` or `said`."""
    # This import is not at the top: it takes half a second, which other workers need not spend.
    from sklearn.metrics import f1_score

    return 100 * float(f1_score(gold, said, average=average, zero_division=0.0))
