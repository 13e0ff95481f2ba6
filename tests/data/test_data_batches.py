"""Rows become batches in five orders."""

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.rows.batches import Order, batches
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.errors import DataError

PREMISES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60)
SIZES, SEEDS = st.integers(1, 70), st.integers(0, 9)


def pairs(premises: list[str]) -> Corpus:
    """Labeled pairs in two chunks, as readers of large files give them."""
    table = pa.table(
        {
            "premise": pa.chunked_array([premises[:7], premises[7:]], pa.string()),
            "hypothesis": pa.array(["h"] * len(premises), pa.string()),
            "label": pa.array([0] * len(premises), pa.int8()),
        }
    )
    return make_corpus("labeled_pairs", table, "made up")


def deal(
    corpus: Corpus, size: int, order: Order, seed: int = 0, drop_last: bool = False
) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [b.tolist() for b in batches(corpus, size, order, generator, drop_last=drop_last)]


def flat(dealt: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(dealt))


@given(rows=st.integers(1, 60), size=SIZES, seed=SEEDS)
def test_file_order_is_slices_and_shuffled_is_a_permutation(
    rows: int, size: int, seed: int
) -> None:
    corpus = pairs(["a"] * rows)  # of one premise: plain shuffling knows no groups
    dealt = [batch.tolist() for batch in batches(corpus, size, "file", None)]
    assert dealt == [list(range(start, min(start + size, rows))) for start in range(0, rows, size)]
    shuffled = deal(corpus, size, "shuffled", seed)
    assert shuffled == deal(corpus, size, "shuffled", seed)
    assert sorted(flat(shuffled)) == list(range(rows))
    assert list(map(len, shuffled)) == list(map(len, dealt))


@given(premises=PREMISES, extra=st.integers(0, 20), seed=SEEDS)
def test_groups_stay_whole(premises: list[str], extra: int, seed: int) -> None:
    groups = {p: [r for r, text in enumerate(premises) if text == p] for p in premises}
    size = max(map(len, groups.values())) + extra
    plain, shuffled = (
        deal(pairs(premises), size, order, seed) for order in ("groups", "shuffled_groups")
    )
    assert flat(plain) == list(itertools.chain(*groups.values()))
    for dealt in (plain, shuffled):
        assert sorted(flat(dealt)) == list(range(len(premises)))
        assert all(1 <= len(batch) <= size for batch in dealt)
        for rows in groups.values():
            batch = next(batch for batch in dealt if rows[0] in batch)
            start = batch.index(rows[0])
            assert batch[start : start + len(rows)] == rows
        for batch, following in itertools.pairwise(dealt):
            # A batch is closed only because the next group would overflow it.
            assert len(batch) + len(groups[premises[following[0]]]) > size


@given(
    premises=PREMISES,
    extra=st.integers(0, 20),
    order=st.sampled_from(["file", "shuffled", "groups", "shuffled_groups"]),
)
def test_drop_last_leaves_out_a_short_last_batch(
    premises: list[str], extra: int, order: Order
) -> None:
    size = max(Counter(premises).values()) + extra
    whole, cut = (deal(pairs(premises), size, order, 0, drop) for drop in (False, True))
    short = len(whole[-1]) < size
    assert cut == (whole[:-1] if short and len(whole) > 1 else whole)


def test_misuse_is_refused() -> None:
    corpus = pairs(["a", "b", "b", "a", "b", "c"])
    message = (
        r"made up: optimizer.batch_size = 2: the 3 examples of the premise 'b' .* to 3 or more"
    )
    with pytest.raises(DataError, match=message):
        batches(corpus, 2, "groups", None)
    with pytest.raises(ValueError, match="batch_size"):
        batches(corpus, 0, "file", None)
    for order in ("shuffled", "distinct", "shuffled_groups"):
        with pytest.raises(ValueError, match=f"{order} needs a generator"):
            batches(corpus, 3, order, None)


# Batches in which no text stands in two rows

Row = tuple[str, str, str]
TRIPLETS = st.lists(
    st.tuples(
        st.sampled_from("abcdefghijkl"), st.sampled_from("aBCDEFGHIJKL"), st.sampled_from(" xyz")
    ),
    max_size=60,
)


def triplets(rows: list[Row]) -> Corpus:
    columns = {
        name: pa.array([row[place].strip() for row in rows], pa.string())
        for place, name in enumerate(("anchor", "positive", "negative_1"))
    }
    return make_corpus("triplets", pa.table(columns), "made up")


def distinct_by_loops(rows: list[Row], order: list[int], size: int) -> list[list[int]]:
    """Each row to the first batch with room that follows all batches with a text of its.

    The negatives of two rows may be equal.
    """
    texts = [[text.strip() for text in row] for row in rows]

    def clash(one: list[str], other: list[str]) -> bool:
        return bool(({*one[:2]} & {*other} | {*one} & {*other[:2]}) - {""})

    dealt: list[list[int]] = []
    for row in order:
        taken = [n for n, b in enumerate(dealt) if any(clash(texts[row], texts[o]) for o in b)]
        number = max(taken, default=-1) + 1
        while number < len(dealt) and len(dealt[number]) >= size:
            number += 1
        if number == len(dealt):
            dealt.append([])
        dealt[number].append(row)
    return dealt


@given(rows=TRIPLETS, size=st.integers(1, 20), seed=SEEDS)
def test_distinct_batches_are_those_of_loops(rows: list[Row], size: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    whole = deal(triplets(rows), size, "distinct", seed)
    assert whole == distinct_by_loops(rows, order, size)
    cut = deal(triplets(rows), size, "distinct", seed, drop_last=True)
    dropped = [batch for batch in whole if batch not in cut]
    assert cut == [batch for batch in whole if batch not in dropped]
    assert sum(map(len, dropped)) < size
    assert max(map(len, dropped), default=0) <= min(map(len, cut), default=0)
    assert not dropped or max(map(len, cut)) == size


def test_large_corpora_are_dealt() -> None:
    """A look at all pairs of groups or of rows would take hours."""
    corpus = pairs([f"premise number {row // 3}" for row in range(550_000)])
    assert sum(map(len, deal(corpus, 64, "shuffled_groups"))) == 550_000
    numbers = np.random.default_rng(0).integers(0, 40_000, (100_000, 2))
    dealt = deal(triplets([(f"{a}", f"{b}", "") for a, b in numbers]), 64, "distinct")
    assert sum(map(len, dealt)) == 100_000
    assert sum(len(batch) == 64 for batch in dealt) >= len(dealt) - 3
