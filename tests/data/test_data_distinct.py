"""Batches in which no text stands in two rows."""

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
from data_samples import REAL_ROOT, load_triplets, needs_real_data
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.rows.batches import batches
from tune_sentcl.data.rows.corpus import Corpus, make_corpus

Row = tuple[str, str, str]

rows_of_few_texts = st.lists(
    st.tuples(
        st.sampled_from("abcdefghijkl"), st.sampled_from("aBCDEFGHIJKL"), st.sampled_from(" xyz")
    ),
    max_size=60,
)


def corpus_of(rows: list[Row]) -> Corpus:
    columns = {
        name: pa.array([row[place].strip() for row in rows], pa.string())
        for place, name in enumerate(("anchor", "positive", "negative_1"))
    }
    return make_corpus("triplets", pa.table(columns), "made up")


def texts_of(corpus: Corpus, row: int) -> set[str]:
    return {str(corpus.table[name][row]) for name in corpus.text_columns()} - {""}


def by_loops(corpus: Corpus, order: list[int], size: int) -> list[list[int]]:
    """Each row to the first batch with room that follows all batches with a text of its."""
    dealt: list[list[int]] = []
    for row in order:
        texts = texts_of(corpus, row)
        taken = [
            number
            for number, batch in enumerate(dealt)
            if any(texts & texts_of(corpus, other) for other in batch)
        ]
        later = range(max(taken, default=-1) + 1, len(dealt) + 1)
        number = next(n for n in later if n == len(dealt) or len(dealt[n]) < size)
        if number == len(dealt):
            dealt.append([])
        dealt[number].append(row)
    return dealt


@given(rows=rows_of_few_texts, size=st.integers(1, 20), seed=st.integers(0, 9))
def test_no_text_stands_twice_and_each_row_once(rows: list[Row], size: int, seed: int) -> None:
    corpus = corpus_of(rows)
    order = np.random.default_rng(seed).permutation(len(rows))
    generator = np.random.default_rng(seed)
    dealt = [batch.tolist() for batch in batches(corpus, size, "distinct", generator)]
    assert sorted(itertools.chain(*dealt)) == list(range(len(rows)))
    for batch in dealt:
        assert 1 <= len(batch) <= size
        texts = [text for row in batch for text in texts_of(corpus, row)]
        assert len(texts) == len(set(texts))
    assert dealt == by_loops(corpus, order.tolist(), size)
    often = Counter(text for row in range(len(rows)) for text in texts_of(corpus, row))
    assert len(dealt) >= max([-(-len(rows) // size), *often.values()])


@given(rows=rows_of_few_texts, size=st.integers(1, 20), seed=st.integers(0, 9))
def test_without_the_shortest_batches_less_than_a_batch_is_left_out(
    rows: list[Row], size: int, seed: int
) -> None:
    corpus = corpus_of(rows)
    whole, cut, again = (
        [b.tolist() for b in batches(corpus, size, "distinct", generator, drop_last=drop)]
        for drop, generator in zip(
            (False, True, True), (np.random.default_rng(seed) for _ in range(3)), strict=True
        )
    )
    dropped = [batch for batch in whole if batch not in cut]
    assert cut == again == [batch for batch in whole if batch not in dropped]
    assert sum(map(len, dropped)) < size
    assert max(map(len, dropped), default=0) <= min(map(len, cut), default=0)
    assert not dropped or max(map(len, cut)) == size


def test_of_texts_that_stand_once_it_is_a_plain_shuffle() -> None:
    texts = pa.array([f"sentence {row}" for row in range(103)])
    corpus = make_corpus("sentences", pa.table({"text": texts}), "made up")
    shuffled, distinct = (
        [b.tolist() for b in batches(corpus, 10, order, np.random.default_rng(3))]
        for order in ("shuffled", "distinct")
    )
    assert distinct == shuffled


def test_a_hundred_thousand_rows_are_dealt() -> None:
    """A look at all pairs of rows would take hours."""
    numbers = np.random.default_rng(0).integers(0, 40_000, (100_000, 2))
    table = pa.table(
        {
            name: pa.array(column).cast(pa.string())
            for name, column in zip(("sentence1", "sentence2"), numbers.T, strict=True)
        }
    )
    corpus = make_corpus("positive_pairs", table, "made up")
    dealt = batches(corpus, 64, "distinct", np.random.default_rng(0))
    assert sum(map(len, dealt)) == 100_000
    assert sum(len(batch) == 64 for batch in dealt) >= len(dealt) - 3
    for batch in dealt[::100]:
        texts = [set(pair) for pair in numbers[batch].tolist()]
        assert sum(map(len, texts)) == len(set().union(*texts))


@needs_real_data
def test_real_triplets_fill_their_batches() -> None:
    corpus = load_triplets("nli-partial", None, REAL_ROOT, 4.0)
    dealt = batches(corpus, 64, "distinct", np.random.default_rng(0))
    assert [len(batch) for batch in dealt] == [64] * 240 + [12]
    assert np.array_equal(np.sort(np.concatenate(dealt)), np.arange(len(corpus)))
