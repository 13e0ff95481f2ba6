import itertools

import numpy as np
import pyarrow as pa
import pytest
from data_samples import REAL_ROOT, load_nli, needs_real_data
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.rows.batches import Order, batches
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.errors import DataError

premise_lists = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60)


def corpus_of(premises: list[str]) -> Corpus:
    table = pa.table(
        {
            "premise": pa.chunked_array([premises[:7], premises[7:]], pa.string()),
            "hypothesis": pa.array(["h"] * len(premises), pa.string()),
            "label": pa.array([0] * len(premises), pa.int8()),
        }
    )
    return make_corpus("labeled_pairs", table, "made up")


def rows_of(dealt: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> list[list[int]]:
    return [batch.tolist() for batch in dealt]


def flat(dealt: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(dealt))


def largest(premises: list[str]) -> int:
    return max(premises.count(premise) for premise in premises)


@given(premises=premise_lists, batch_size=st.integers(1, 70))
def test_file_order_is_plain_slices(premises: list[str], batch_size: int) -> None:
    dealt = rows_of(batches(corpus_of(premises), batch_size, "file", None))
    assert flat(dealt) == list(range(len(premises)))
    assert all(len(batch) == batch_size for batch in dealt[:-1])
    assert 1 <= len(dealt[-1]) <= batch_size


@given(premises=premise_lists, extra=st.integers(0, 20), seed=st.integers(0, 9))
def test_groups_stay_whole(premises: list[str], extra: int, seed: int) -> None:
    batch_size = largest(premises) + extra
    corpus = corpus_of(premises)
    plain = rows_of(batches(corpus, batch_size, "groups", None))
    shuffled = rows_of(batches(corpus, batch_size, "shuffled_groups", np.random.default_rng(seed)))
    for dealt in (plain, shuffled):
        assert sorted(flat(dealt)) == list(range(len(premises)))
        assert all(1 <= len(batch) <= batch_size for batch in dealt)
        for premise in set(premises):
            rows = [row for row, text in enumerate(premises) if text == premise]
            batch = next(batch for batch in dealt if rows[0] in batch)
            start = batch.index(rows[0])
            assert batch[start : start + len(rows)] == rows
        for batch, following in itertools.pairwise(dealt):
            # A batch is closed only because the next group would overflow it.
            assert len(batch) + premises.count(premises[following[0]]) > batch_size
    expected = [
        row
        for premise in dict.fromkeys(premises)
        for row, text in enumerate(premises)
        if text == premise
    ]
    assert flat(plain) == expected


@given(rows=st.integers(1, 60), batch_size=st.integers(1, 70), seed=st.integers(0, 9))
def test_shuffled_is_a_permutation_in_full_batches(rows: int, batch_size: int, seed: int) -> None:
    corpus = corpus_of(["a"] * rows)  # of one premise: plain shuffling knows no groups
    first, second = (
        rows_of(batches(corpus, batch_size, "shuffled", np.random.default_rng(seed)))
        for _ in range(2)
    )
    assert first == second
    assert sorted(flat(first)) == list(range(rows))
    assert [len(batch) for batch in first] == [
        len(batch) for batch in batches(corpus, batch_size, "file", None)
    ]


@given(
    premises=premise_lists,
    extra=st.integers(0, 20),
    order=st.sampled_from(["file", "shuffled", "groups", "shuffled_groups"]),
)
def test_drop_last_leaves_out_a_short_last_batch(
    premises: list[str], extra: int, order: Order
) -> None:
    size = largest(premises) + extra
    whole, cut = (
        rows_of(
            batches(corpus_of(premises), size, order, np.random.default_rng(0), drop_last=drop)
        )
        for drop in (False, True)
    )
    short = len(whole[-1]) < size
    assert cut == (whole[:-1] if short and len(whole) > 1 else whole)


def test_too_large_a_group_is_refused() -> None:
    corpus = corpus_of(["a", "b", "b", "a", "b", "c"])
    message = r"made up: optimizer.batch_size = 2: the 3 rows of the premise 'b' .* to 3 or more"
    with pytest.raises(DataError, match=message):
        batches(corpus, 2, "groups", None)
    assert len(batches(corpus, 2, "file", None)) == 3


def test_misuse() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        batches(corpus_of(["a"]), 0, "file", None)
    for order in ("shuffled", "distinct", "shuffled_groups"):
        with pytest.raises(ValueError, match=f"{order} needs a generator"):
            batches(corpus_of(["a"]), 1, order, None)


def test_half_a_million_rows_are_dealt() -> None:
    """All of SNLI; a loop over all pairs of groups would take hours."""
    corpus = corpus_of([f"premise number {row // 3}" for row in range(550_000)])
    dealt = batches(corpus, 64, "shuffled_groups", np.random.default_rng(0))
    assert sum(map(len, dealt)) == 550_000


@needs_real_data
def test_real_groups_fit() -> None:
    corpus = load_nli("snli-first2000", None, REAL_ROOT)
    dealt = batches(corpus, 64, "groups", None)
    premises = corpus.texts("premise")
    seen = [{premises[row] for row in batch} for batch in dealt]
    assert sum(map(len, seen)) == len(set(premises)) == 540
    assert np.array_equal(np.concatenate(dealt), np.arange(2000))
