"""Exact search and its metrics against pytrec_eval, on random, tied and real rankings."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate import retrieval
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.retrieval import score_retrieval
from tune_sentcl.shapes import EmbeddingMatrix

Encode = Callable[[list[str]], EmbeddingMatrix]
NAMES = ("ndcg@10", "mrr@10", "recall@100")
MORE = (*NAMES, *(f"{name}@{k}" for k in (1, 3, 20, 1000) for name in ("ndcg", "mrr", "recall")))


Judged = Mapping[str, Mapping[str, int]]


def made(
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    judged: Judged,
    metrics: tuple[str, ...] = MORE,
) -> RetrievalTask:
    """A task of texts whose judgments are by query and document."""
    ids = tuple(sorted(sorted(documents, reverse=True), key=lambda one: not documents[one]))
    filled = tuple(documents[i] for i in ids if documents[i])
    texts = tuple(queries[query] for query in judged)
    own = tuple(query if query in documents else None for query in judged)
    relevance = tuple(judged.values())
    return RetrievalTask("mine", "dev", ids, filled, texts, relevance, own, metrics=metrics)


def measured(task: RetrievalTask, encode: Encode) -> tuple[float, ...]:
    table = SentenceTable(
        lambda texts, prompt="text": encode(texts), [], task.queries, task.documents
    )
    scores = list(score_retrieval(table, task))
    assert [score.metric for score in scores] == list(task.metrics)
    assert {(score.suite, score.protocol, score.n) for score in scores} == {
        ("own", "retrieval", len(task.queries))
    }
    return tuple(score.value or 0.0 for score in scores)


def by_trec_eval(task: RetrievalTask, encode: Encode) -> tuple[float, ...]:
    """What pytrec_eval says of scikit-learn's cosines; documents without text have -2."""
    asked, rows = (encode(list(t)).astype(np.float64) for t in (task.queries, task.documents))
    cosines = cosine_similarity(asked, rows).astype(np.float32).tolist()
    empty = [-2.0] * (len(task.document_ids) - len(task.documents))
    run = {
        f"q{n}": dict(zip(task.document_ids, [*own, *empty], strict=True))
        for n, own in enumerate(cosines)
    }
    for scores, left_out in zip(run.values(), task.left_out, strict=True):
        scores.pop(left_out or "", None)
    qrels = {f"q{n}": dict(grades) for n, grades in enumerate(task.relevance)}
    cuts = [(name, int(k)) for name, _, k in (metric.partition("@") for metric in task.metrics)]
    theirs = {"ndcg": "ndcg_cut", "recall": "recall"}
    wanted = {f"{theirs[name]}.{k}" for name, k in cuts if name in theirs}
    whole = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run)

    def by_query(name: str, k: int) -> list[float]:
        if name in theirs:
            return [whole[q][f"{theirs[name]}_{k}"] for q in qrels]
        cut = {q: _first(scores, k) for q, scores in run.items()}
        ranks = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(cut)
        return [ranks[q]["recip_rank"] for q in qrels]

    return tuple(100 * float(np.mean(by_query(name, k))) for name, k in cuts)


def _first(scores: Mapping[str, float], most: int) -> dict[str, float]:
    by_id = sorted(scores, reverse=True)
    return {one: scores[one] for one in sorted(by_id, key=lambda one: -scores[one])[:most]}


def vectors(dim: int, *, whole: bool) -> Encode:
    """Embeddings drawn by the text; small whole numbers make many ties."""

    def encode(texts: list[str]) -> EmbeddingMatrix:
        rows = []
        for text in texts:
            rng = np.random.default_rng(list(text.encode()))
            rows.append(rng.integers(-1, 2, dim) if whole else rng.standard_normal(dim))
        return np.asarray(rows, np.float32).reshape(len(texts), dim) + np.float32(whole * 0.5)

    return encode


IDS = st.text(st.sampled_from("aAbB01é~"), min_size=1, max_size=3)


@given(
    ids=st.lists(IDS, min_size=1, max_size=150, unique=True),
    empty=st.integers(0, 3),
    grades=st.lists(
        st.dictionaries(st.integers(0, 160), st.integers(-1, 3)), min_size=1, max_size=4
    ),
    whole=st.booleans(),
)
def test_rankings_are_those_of_trec_eval(
    ids: list[str], empty: int, grades: list[dict[int, int]], whole: bool
) -> None:
    """Some documents have no text, and some have the id of a query."""
    documents = {
        one: f"document {place % 40}" if place % 4 >= empty else ""
        for place, one in enumerate([*ids, "end", "the end", "an end"])
    }
    judged = {
        (f"q{n}" if n % 2 or n >= len(ids) else ids[n]): {
            ids[at % len(ids)]: grade for at, grade in own.items()
        }
        or {ids[0]: 1}
        for n, own in enumerate(grades)
    }
    task = made(documents, {q: f"query {q}" for q in judged}, judged)
    encode = vectors(2, whole=whole)
    np.testing.assert_allclose(
        measured(task, encode), by_trec_eval(task, encode), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("whole", [True, False])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    documents = {f"d{n}": f"text {n % 300}" for n in range(700)}
    judged = {f"q{n}": {f"d{n * 7 + k}": 1 + k % 3 for k in range(9)} for n in range(40)}
    task = made(documents, {q: f"asks {q}" for q in judged}, judged, NAMES)
    encode = vectors(4, whole=whole)
    at_once = measured(task, encode)
    monkeypatch.setattr(retrieval, "_QUERIES", 7)
    monkeypatch.setattr(retrieval, "_DOCUMENTS", 33)
    assert measured(task, encode) == at_once
    np.testing.assert_allclose(at_once, by_trec_eval(task, encode), rtol=0, atol=1e-6)


def test_a_query_without_a_relevant_document_counts_as_0() -> None:
    task = made({"a": "x", "b": "y"}, {"q": "x", "r": "x"}, {"q": {"a": 1}, "r": {"a": 0}})
    assert set(measured(task, vectors(8, whole=False))) == {50.0}


def test_a_collapsed_encoder_is_refused() -> None:
    task = made({"a": "x", "b": "y"}, {"q": "z"}, {"q": {"a": 1}})
    with pytest.raises(NonFiniteError, match="3 of 3 texts have the zero vector"):
        measured(task, lambda texts: np.zeros((len(texts), 3), np.float32))
