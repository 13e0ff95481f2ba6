"""Retrieval by cosine or dot product: exact search in blocks, with the metrics of `trec_eval`.

Two rules of `trec_eval` affect a score: it compares documents by float32 similarities, and of
equal similarities the lexicographically greater id comes first. A query without a relevant
document scores 0. Two rules are from BEIR and mteb: the document with a query's own id is left out
of that query's ranking, and documents without text rank last.

Source: usnistgov/trec_eval, form_res_rels.c, m_ndcg_cut.c, m_recip_rank.c and m_recall.c;
beir-cellar/beir, beir/retrieval/evaluation.py (`ignore_identical_ids`).
"""

from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.encode import FEW_ZEROS, SentenceTable
from tune_sentcl.items import ItemScores
from tune_sentcl.objective import metric_cutoff
from tune_sentcl.score import Score
from tune_sentcl.shapes import EmbeddingMatrix

_QUERIES, _DOCUMENTS = 256, 8192
"""Numbers of queries and documents in a block, whose 2 million similarities take 16 MB."""


Similarity = Literal["cosine", "dot"]
"""How a query and a document are compared."""


def score_retrieval(
    sentences: SentenceTable, task: RetrievalTask, similarity: Similarity = "cosine"
) -> tuple[list[Score], list[ItemScores]]:
    """Search every document for every query, and score the rankings.

    Args:
        sentences: Holds the task's texts and queries.
        task: The queries, the documents and their relevance.
        similarity: The similarity that ranks the documents.

    Returns:
        The task's metrics x 100, as means over queries, and the metrics of each query, from 0 to
        1.

    Raises:
        NonFiniteError: An embedding is not finite, or more than one text in a thousand has the
            zero vector. Up to that share, such texts get cosines of 0.
    """
    texts, queries = set(task.documents), set(task.queries)
    zeros = sentences.documents.zeros(texts) + sentences.queries.zeros(queries)
    count = len(texts) + len(queries)
    if zeros > FEW_ZEROS * count:
        raise NonFiniteError(
            f"{task.name}: {zeros} of {count} texts have the zero vector as embedding"
        )
    numbers = {document: number for number, document in enumerate(task.document_ids)}
    cuts = [cut for metric in task.metrics if (cut := metric_cutoff(metric))]
    deepest = max(cutoff for _, cutoff in cuts)
    last = np.arange(len(task.documents), len(task.document_ids))[: deepest + 1]
    by_query = []
    for start in range(0, len(task.queries), _QUERIES):
        part = slice(start, start + _QUERIES)
        ranked = nearest(sentences, task.queries[part], task, deepest + 1, similarity)
        for row, grades, own in zip(
            ranked, task.relevance[part], task.left_out[part], strict=True
        ):
            gains = {numbers[document]: grade for document, grade in grades.items()}
            order = np.concatenate([row, last])
            order = order[order != numbers.get(own or "", -1)]
            ranking = np.array([gains.get(number, 0) for number in order.tolist()], np.float64)
            judged = sorted(grades.values(), reverse=True)
            by_query.append(
                [_score(ranking[:cutoff], judged, name, cutoff) for name, cutoff in cuts]
            )
    columns = np.array(by_query, np.float64).T
    items = [
        ItemScores(task.name, split, metric, values)
        for (metric, split), values in zip(task.offers, columns, strict=True)
    ]
    count, version = len(task.queries), task.version
    scores = [
        Score(
            "own",
            task.name,
            each.split,
            each.metric,
            "retrieval",
            task.data,
            100 * float(np.mean(each.values)),
            count,
            version=version,
        )
        for each in items
    ]
    return scores, items


def nearest(
    sentences: SentenceTable,
    queries: tuple[str, ...],
    task: RetrievalTask,
    most: int,
    similarity: Similarity = "cosine",
) -> Int64[np.ndarray, "queries found"]:
    """The numbers of each query's nearest documents, at most `most`, nearest first."""
    asked = _of_length_1(sentences.queries.rows(queries, task.name))
    best = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(task.documents), _DOCUMENTS):
        part = task.documents[start : start + _DOCUMENTS]
        rows = sentences.documents.rows(part, task.name)
        # In double precision, equal documents get equal cosines, whatever their position in a
        # block.
        documents = _of_length_1(rows) if similarity == "cosine" else rows.astype(np.float64)
        keys = np.concatenate([best, _keys(asked @ documents.T, start)], axis=1)
        best = keys if keys.shape[1] <= most else np.partition(keys, -most, axis=1)[:, -most:]
    numbers: Int64[np.ndarray, "queries found"] = _LAST - (np.sort(best, axis=1)[:, ::-1] & _LAST)
    return numbers


_LAST = np.int64(2**32 - 1)


def _keys(
    similarities: Float64[np.ndarray, "queries documents"], start: int
) -> Int64[np.ndarray, "queries documents"]:
    """Integers that order documents as float32 similarities do; ties go to the first document."""
    bits = (
        (similarities.astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)
    )  # adding 0 turns -0 into 0
    rising = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    numbers = np.arange(start, start + similarities.shape[1], dtype=np.int64)
    keys: Int64[np.ndarray, "queries documents"] = (rising << 32) | (_LAST - numbers)
    return keys


def _score(
    ranking: Float64[np.ndarray, " found"], judged: list[int], metric: str, cutoff: int
) -> float:
    """A metric of one ranking, cut to `cutoff` documents.

    `ranking` has the grade of each document, or 0. `judged` has all grades of the query,
    descending.
    """
    relevant = sum(grade > 0 for grade in judged)
    if not relevant:
        return 0.0
    if metric == "ndcg":
        return _gain(ranking) / _gain(np.array(judged[:cutoff], np.float64))
    hits = np.flatnonzero(ranking > 0)
    if metric == "mrr":
        return 1 / (1 + int(hits[0])) if hits.size else 0.0
    return len(hits) / relevant


def _gain(grades: Float64[np.ndarray, " found"]) -> float:
    gains = grades.clip(min=0)
    return float((gains / np.log2(np.arange(2, 2 + len(gains)))).sum())


def _of_length_1(matrix: EmbeddingMatrix) -> Float64[np.ndarray, "sentences dim"]:
    rows = matrix.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Float64[np.ndarray, "sentences dim"] = rows / np.where(lengths > 0, lengths, 1.0)
    return unit
