"""Semantic textual similarity: correlation of cosines with human scores.

Papers aggregate a task's subsets in three ways and seldom say which: SCL weights them by size,
SimCSE and ConIsI join their pairs, others take the plain mean. Each aggregation is a score.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float64

from tune_sentcl.data.task import StsSubset, StsTask
from tune_sentcl.evaluate.correlation import paired_cosine, pearson, spearman
from tune_sentcl.evaluate.encode import FEW_ZEROS, SentenceTable
from tune_sentcl.score import Aggregation, Score

_Correlation = Literal["spearman", "pearson"]
_METRICS: tuple[_Correlation, ...] = ("spearman", "pearson")


def few_zeros(
    sentences: SentenceTable, tasks: Sequence[StsTask], among: Sequence[StsTask] | None = None
) -> int:
    """How many sentences of some tasks have the zero vector; 0 if they are too many to tolerate.

    CLSR's ReLU on the embedding can turn a sentence into the zero vector. SentEval counts its
    cosines as 0. Scores here do so while at most one sentence in a thousand has the zero vector.

    Args:
        sentences: Holds the tasks' sentences.
        tasks: The tasks.
        among: The tasks whose sentences the share refers to, so that an evaluation point tolerates
            what the final evaluation does; None: `tasks`.
    """
    found = sentences.zeros(set(_sentences(tasks)))
    return found if found <= FEW_ZEROS * len(set(_sentences(among or tasks))) else 0


def _sentences(tasks: Sequence[StsTask]) -> Iterator[str]:
    for task in tasks:
        for subset in task.subsets:
            yield from subset.sentences1
            yield from subset.sentences2


def score_task(sentences: SentenceTable, task: StsTask, *, zeros: bool = False) -> Iterator[Score]:
    """Score one task by cosine, without training; `zeros` as for `paired_cosine`."""
    cosines = [_cosines(sentences, task, subset, zeros) for subset in task.subsets]
    sizes = [len(subset.gold) for subset in task.subsets]
    for metric in _METRICS:
        values = [
            _correlate(metric, found, subset.gold, f"{metric} of {task.name} {subset.name}")
            for found, subset in zip(cosines, task.subsets, strict=True)
        ]
        if len(values) == 1:
            yield _score(task, None, metric, None, values[0], sizes[0])
            continue
        for subset, value, size in zip(task.subsets, values, sizes, strict=True):
            yield _score(task, subset.name, metric, None, value, size)
        gold = [score for subset in task.subsets for score in subset.gold]
        joined = _correlate(metric, np.concatenate(cosines), gold, f"{metric} of {task.name}")
        yield _score(task, None, metric, "all", joined, sum(sizes))
        yield _score(task, None, metric, "mean", float(np.mean(values)), sum(sizes))
        weighted = float(np.average(values, weights=sizes))
        yield _score(task, None, metric, "wmean", weighted, sum(sizes))


def _cosines(
    sentences: SentenceTable, task: StsTask, subset: StsSubset, zeros: bool
) -> Float64[np.ndarray, " pairs"]:
    name = f"{task.name} {subset.name}"
    left, right = sentences.rows(subset.sentences1, name), sentences.rows(subset.sentences2, name)
    return paired_cosine(left, right, name, zeros=zeros)


def _correlate(
    metric: _Correlation, cosines: Float64[np.ndarray, " pairs"], gold: Sequence[float], name: str
) -> float:
    match metric:
        case "spearman":
            return spearman(cosines, gold, name)
        case "pearson":
            return pearson(cosines, gold, name)


def _score(
    task: StsTask,
    subset: str | None,
    metric: str,
    aggregation: Aggregation | None,
    value: float,
    n: int,
) -> Score:
    return Score(
        task.suite,
        task.name,
        task.split,
        metric,
        "cosine",
        task.data,
        100 * value,
        n,
        subset=subset,
        aggregation=aggregation,
        version=task.version,
    )
