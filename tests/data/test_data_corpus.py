"""Rows of one kind: what batches read of them, their fingerprint, their way to other processes."""

import pickle

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.rows.corpus import Batch, Corpus, make_corpus

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1)


def sentences(*texts: str) -> Corpus:
    return make_corpus("sentences", pa.table({"text": pa.array(texts, pa.string())}), "made up")


def graded(count: int) -> Corpus:
    columns = {
        "score": pa.array([row / 2 for row in range(count)]),
        "sentence1": pa.array([f"left {row}" for row in range(count)]),
        "other": pa.array(range(count)),
        "sentence2": pa.array([f"right {row % 3}" for row in range(count)]),
    }
    # In several chunks, as readers of large files give them.
    table = pa.concat_tables([pa.table(columns).slice(0, 4), pa.table(columns).slice(4)])
    return make_corpus("graded_pairs", table, "made up")


@given(rows=st.lists(st.integers(0, 9), min_size=1))
def test_a_batch_reads_its_rows(rows: list[int]) -> None:
    corpus = graded(10)
    batch = Batch(corpus, np.array(rows))
    assert len(batch) == len(rows)
    for name in ("sentence1", "sentence2"):
        assert batch.texts(name) == [corpus.texts(name)[row] for row in rows]
    assert batch.numbers("score").tolist() == [row / 2 for row in rows]


def test_triplets_have_as_many_negatives_as_their_table() -> None:
    columns = {"negative_2": ["d"], "anchor": ["a"], "negative_10": ["e"], "negative": ["no"]}
    table = pa.table({**columns, "positive": ["b"], "negative_0": ["no"]})
    corpus = make_corpus("triplets", table, "made up")
    assert corpus.text_columns() == ("anchor", "positive", "negative_2", "negative_10")
    assert corpus.negatives() == ("negative_2", "negative_10")
    plain = make_corpus("triplets", table.select(["anchor", "positive"]), "made up")
    assert plain.negatives() == () and plain.fingerprint != corpus.fingerprint
    assert graded(2).negatives() == ()


def test_sentences_are_distinct_the_first_column_first() -> None:
    assert graded(5).sentences() == [
        *(f"left {row}" for row in range(5)),
        *(f"right {row}" for row in range(3)),
    ]
    assert sentences("b", "", "a", "b").sentences() == ["b", "", "a"]
    assert Corpus("nothing", pa.table({}), "", "").sentences() == []


@given(first=TEXTS, second=TEXTS)
def test_the_fingerprint_is_the_content(first: list[str], second: list[str]) -> None:
    same = sentences(*first).fingerprint == sentences(*second).fingerprint
    assert same == (first == second)


def test_the_fingerprint_sees_every_column_and_no_name() -> None:
    base = graded(6)
    table = base.table
    assert make_corpus("graded_pairs", table, "another name").fingerprint == base.fingerprint
    for name, value in (("score", 0.0), ("sentence1", "x"), ("sentence2", "x")):
        place = table.column_names.index(name)
        changed = table.set_column(place, name, pa.array([value] * 6))
        assert make_corpus("graded_pairs", changed, "made up").fingerprint != base.fingerprint


def test_the_head_of_a_large_table_is_small_in_a_pickle() -> None:
    large = pa.table({"text": pa.array([f"sentence number {row}" for row in range(50_000)])})
    head = make_corpus("sentences", large.slice(20_000, 100), "made up")
    assert head.texts("text")[0] == "sentence number 20000"
    assert len(pickle.dumps(head)) < 10_000
    assert len(pickle.dumps(make_corpus("sentences", large, "made up"))) < 1.2 * large.nbytes
