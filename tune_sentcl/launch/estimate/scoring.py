"""How long scoring takes once all is encoded, told from some rows of each kind of task."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from tune_sentcl.data.task import StsTask, TransferTask
from tune_sentcl.data.tasks.own_task import LabeledTask, MtebTask, RetrievalTask
from tune_sentcl.data.tasks.sets import EvaluationSets, RatedTask
from tune_sentcl.evaluate import Measures
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.labeled import score_labeled
from tune_sentcl.evaluate.retrieval import score_retrieval
from tune_sentcl.evaluate.sts import score_task
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.evaluate.transfer import score_rated, score_transfer
from tune_sentcl.launch.estimate.small_tasks import (
    Task,
    Vector,
    cut,
    made_up,
    row_count,
    task_of,
)
from tune_sentcl.score import Score
from tune_sentcl.shapes import EmbeddingMatrix

_FEW, _MORE = 200, 600
"""Rows that a task is cut to. What its scoring takes grows with the rows beyond a beginning."""
_SEED = 1111


class ScoringPace:
    """Times each kind of task once a protocol, when it is first asked for."""

    def __init__(self, device: str) -> None:
        """Nothing is timed yet.

        Args:
            device: Where the classifiers are trained.
        """
        self._device = device
        self._known: dict[tuple[object, ...], tuple[float, float]] = {}

    def all(self, sets: EvaluationSets, measures: Measures, width: int) -> float:
        """Seconds for all that is measured on some sets, every classifier seed counted.

        Args:
            sets: The sets.
            measures: How they are scored.
            width: Of an embedding.
        """
        wanted = (one._replace(metric=None) for one in expected_measurements(sets, measures))
        return sum(
            self.one(task_of(sets, found), found.protocol, width)
            for found in dict.fromkeys(wanted)  # one ranking gives all metrics
        )

    def one(self, task: Task, protocol: str, width: int) -> float:
        """Seconds for one task under one protocol and one seed; of MTEB's nothing is known."""
        if isinstance(task, MtebTask):
            return 0.0
        kind: tuple[object, ...] = (protocol, type(task), width)
        if isinstance(task, TransferTask):
            kind += (task.design, len(set(task.train.labels)), task.train.second is None)
        if isinstance(task, LabeledTask):
            folds = len(set(task.folds or ()))
            kind += (task.dev is None, task.test is None, folds, len(set(task.rows.labels)))
        if kind not in self._known:
            self._known[kind] = self._law(task, protocol, width)
        beginning, slope = self._known[kind]
        return beginning + slope * row_count(task)

    def _law(self, task: Task, protocol: str, width: int) -> tuple[float, float]:
        """Seconds that do not depend on the rows, and seconds a row."""
        few, more = cut(task, _FEW), cut(task, _MORE)
        first = _timed(few, protocol, width, self._device)
        if row_count(more) == row_count(few):
            return 0.0, first / row_count(few)
        second = _timed(more, protocol, width, self._device)
        slope = max(0.0, second - first) / (row_count(more) - row_count(few))
        return max(0.0, first - slope * row_count(few)), slope


def _timed(task: Task, protocol: str, width: int, device: str) -> float:
    vectors = made_up(task, width)
    queries = task.queries if isinstance(task, RetrievalTask) else ()
    table = SentenceTable(partial(_looked_up, vectors), vectors, queries)
    start = time.perf_counter()
    list(_score(table, task, protocol, device))
    return time.perf_counter() - start


def _looked_up(
    vectors: Mapping[str, Vector], names: Sequence[str], *, query: bool = False
) -> EmbeddingMatrix:
    return np.stack([vectors[name] for name in names])


def _score(table: SentenceTable, task: Task, protocol: str, device: str) -> Iterable[Score]:
    match task:
        case StsTask():
            return score_task(table, task)
        case RetrievalTask():
            return score_retrieval(table, task)
        case LabeledTask():
            return score_labeled(table, task, device)
        case MtebTask():
            return ()
        case RatedTask():
            return score_rated(table, task, _SEED, device)
        case TransferTask():
            return score_transfer(table, task, protocol, _SEED, device)
