"""The user's own labeled sentences, scored by the classifier of `logreg-10fold`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from tune_sentcl.data.task import ClassifiedRows
from tune_sentcl.data.tasks.own_task import LabeledTask, OwnSplit
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.logreg import LogisticClassifier
from tune_sentcl.evaluate.splits import Labeled
from tune_sentcl.score import Score

_FOLDS = 10


def score_labeled(
    sentences: SentenceTable, task: LabeledTask, device: str = "cpu"
) -> Iterator[Score]:
    """Score one task.

    Args:
        sentences: Holds the task's sentences.
        task: The task.
        device: The torch device to fit on.

    Returns:
        Accuracy and macro F1 x 100 of each predicted split. If folds of the training rows choose
        the regularization, also the accuracy of these folds as `dev`.

    Raises:
        DataError: No classifier can be trained on the rows.
        NonFiniteError: An embedding is not finite.
    """
    classifier = LogisticClassifier(device)
    rows, dev, test = (
        None if part is None else _labeled(sentences, part, task.name)
        for part in (task.rows, task.dev, task.test)
    )
    if rows is None:
        raise ValueError(f"{task.name} has no rows to learn from")

    def scores(split: OwnSplit, accuracy: float, of: Labeled, said: Any = None) -> Iterator[Score]:
        named = {"accuracy": accuracy}
        if said is not None:
            named["macro_f1"] = 100 * macro_f1(of.labels, said)
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
        # One call predicts the dev and the test rows; no fit is trained on either.
        both = dev if test is None else _joined(dev, test)
        found = classifier.dev_then_test(rows, dev, both)
        count = len(dev.labels)
        yield from scores("dev", found.dev, dev, found.predictions[:count])
        if test is not None:
            said = found.predictions[count:]
            yield from scores("test", 100 * float((said == test.labels).mean()), test, said)
    elif test is not None:
        found = classifier.folds_then_test(rows, test, _FOLDS)
        yield from scores("dev", found.dev, rows)
        yield from scores("test", found.test, test, found.predictions)
    else:
        found = (
            classifier.nested(rows, _FOLDS)
            if task.folds is None
            else classifier.nested_in(rows, np.array(task.folds))
        )
        yield from scores(task.split, found.test, rows, found.predictions)


def macro_f1(gold: Int[np.ndarray, " rows"], said: Int[np.ndarray, " rows"]) -> float:
    """The mean of the classes' F1, over the classes that are gold or predicted."""
    classes = np.union1d(gold, said)
    found = []
    for one in classes.tolist():
        hits = int(((gold == one) & (said == one)).sum())
        found.append(2 * hits / (int((gold == one).sum()) + int((said == one).sum())))
    return float(np.mean(found))


def _labeled(sentences: SentenceTable, part: ClassifiedRows, name: str) -> Labeled:
    return Labeled(sentences.rows(part.first, name), np.array(part.labels))


def _joined(first: Labeled, second: Labeled) -> Labeled:
    return Labeled(
        np.concatenate([first.features, second.features]),
        np.concatenate([first.labels, second.labels]),
    )
