"""Tasks cut to some of their rows, and embeddings made up for them, to time a classifier on."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float32

from tune_sentcl.data.task import ClassifiedRows, StsSubset, StsTask, TransferTask
from tune_sentcl.data.tasks.own_task import (
    LabeledTask,
    MtebTask,
    OwnTask,
    RetrievalTask,
    queries_of,
    texts_of,
)
from tune_sentcl.data.tasks.sets import EvaluationSets, RatedTask
from tune_sentcl.score import Measurement
from tune_sentcl.seeding import stream

Task = OwnTask | RatedTask | TransferTask
Vector = Float32[np.ndarray, " dim"]

_LEAST = 12  # rows of a class: ten folds within ten folds want them
_COMPARED = 1000
_APART = 2.0  # standard deviations between two classes, so that most rows can be told


def task_of(sets: EvaluationSets, found: Measurement) -> Task:
    """The task of a measurement that is expected of some sets."""
    for own in sets.own:
        if (own.name, own.split) == (found.task, found.split):
            return own
    match found.protocol.partition("@")[0]:
        case "cosine":
            return next(t for t in sets.sts if (t.name, t.split) == (found.task, found.split))
        case "relatedness":
            return next(task for task in sets.rated if task.test.name == found.task)
        case "scl-paper-compat":
            return next(task for task in sets.truncated if task.name == found.task)
        case _:
            return next(task for task in sets.transfer if task.name == found.task)


def row_count(task: Task) -> int:
    """How many rows a task has, in all its parts; of a search, thousands of comparisons."""
    match task:
        case StsTask():
            return len(task)
        case RetrievalTask():
            return 1 + len(task.queries) * len(task.documents) // _COMPARED
        case RatedTask():
            return len(task.train) + len(task.dev) + len(task.test)
        case TransferTask() | LabeledTask():
            return sum(map(len, task.parts))
        case MtebTask():
            return 0


def cut(task: Task, rows: int) -> Task:
    """Leave about so many rows of a task, every part in its share, from beginning to end."""
    share = rows / max(1, row_count(task))
    match task:
        case StsTask():
            return _cut_pairs(task, share)
        case RatedTask():
            parts = (_cut_pairs(part, share) for part in (task.train, task.dev, task.test))
            return RatedTask(*parts)
        case RetrievalTask():
            return _cut_search(task, share)
        case LabeledTask():
            return _cut_labeled(task, share)
        case MtebTask():
            return task
        case TransferTask():
            train, dev, test = (
                None if part is None else _cut_rows(part, share)
                for part in (task.train, task.dev, task.test)
            )
            return replace(task, train=train or task.train, dev=dev, test=test)


def _cut_pairs(task: StsTask, share: float) -> StsTask:
    return replace(task, subsets=tuple(_cut_subset(subset, share) for subset in task.subsets))


def _cut_subset(subset: StsSubset, share: float) -> StsSubset:
    kept = _kept(len(subset), share)
    first, second = (
        tuple(side[row] for row in kept) for side in (subset.sentences1, subset.sentences2)
    )
    gold = tuple(subset.gold[row] for row in kept)
    return StsSubset(subset.name, first, second, gold)


def _cut_search(task: RetrievalTask, share: float) -> RetrievalTask:
    side = min(1.0, share) ** 0.5
    asked, there = (_kept(n, side) for n in (len(task.queries), len(task.documents)))
    return replace(
        task,
        document_ids=tuple(task.document_ids[row] for row in there),
        documents=tuple(task.documents[row] for row in there),
        queries=tuple(task.queries[row] for row in asked),
        relevance=tuple(task.relevance[row] for row in asked),
    )


def _cut_labeled(task: LabeledTask, share: float) -> LabeledTask:
    if task.folds is not None:  # which every class has to keep its rows in
        return task
    rows, dev, test = (
        None if part is None else _cut_rows(part, share)
        for part in (task.rows, task.dev, task.test)
    )
    return replace(task, rows=rows or task.rows, dev=dev, test=test)


def _cut_rows(part: ClassifiedRows, share: float) -> ClassifiedRows:
    of_class: dict[int, list[int]] = {}
    for row, label in enumerate(part.labels):
        of_class.setdefault(label, []).append(row)
    kept = sorted(rows[k] for rows in of_class.values() for k in _kept(len(rows), share))
    second = None if part.second is None else tuple(part.second[row] for row in kept)
    return ClassifiedRows(
        tuple(part.first[row] for row in kept), second, tuple(part.labels[row] for row in kept)
    )


def _kept(count: int, share: float) -> Sequence[int]:
    """Places from the first to the last, evenly."""
    wanted = min(count, max(_LEAST, round(count * share)))
    return [int(place) for place in np.linspace(0, count - 1, wanted)]


def made_up(task: Task, width: int) -> dict[str, Vector]:
    """Embeddings for a task's sentences, with a trace of the class or the similarity.

    How long a classifier takes depends on their size, on how unequally they spread, and on how
    hard the task is: these are as with all-MiniLM-L6-v2 and a task on which it is right four times
    in five.
    """
    draws = stream(0, "made-up embeddings")
    place = np.arange(width)
    deviations = 0.9 * (1 + place) ** -0.25 * np.sqrt(1 - place / width)
    turned = np.linalg.qr(draws.standard_normal((width, width)))[0] * deviations
    step = _APART / (2 * width) ** 0.5

    def vector() -> Vector:
        drawn: Vector = (turned @ draws.standard_normal(width)).astype(np.float32)
        return drawn

    if isinstance(task, RetrievalTask | MtebTask):
        return {text: vector() for text in (*texts_of(task), *queries_of(task))}
    if isinstance(task, TransferTask | LabeledTask):
        return _of_classes(task, vector, step)
    found: dict[str, Vector] = {}
    parts = [task] if isinstance(task, StsTask) else [task.train, task.dev, task.test]
    for subset in (subset for part in parts for subset in part.subsets):
        pairs = zip(subset.sentences1, subset.sentences2, subset.gold, strict=True)
        for first, second, gold in pairs:
            found[first] = base = vector()
            found[second] = base + (1 - gold / 10) * vector()
    return found


def _of_classes(
    task: TransferTask | LabeledTask, vector: Callable[[], Vector], step: float
) -> dict[str, Vector]:
    learned = task.rows if isinstance(task, LabeledTask) else task.train
    marks = [step * vector() for _ in range(1 + max(learned.labels))]
    found: dict[str, Vector] = {}
    for part in task.parts:
        for row, label in enumerate(part.labels):
            found[part.first[row]] = base = vector() + marks[label]
            if part.second is not None:
                found[part.second[row]] = base + (1 + label * step) * vector()
    return found
