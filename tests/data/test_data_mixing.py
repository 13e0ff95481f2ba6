"""Rows of several sources: what is loaded, and whose batch follows whose."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data_samples import load, load_triplets, rows_of
from disk_samples import write
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config import (
    evaluation_data,
    is_toy,
    parse_dotted,
    source_names,
)
from tune_sentcl.data.rows.batches import Mix, Order, batches
from tune_sentcl.data.rows.corpus import Corpus, join_corpora, make_corpus
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.errors import ConfigError, DataError

sizes_of_parts = st.lists(st.integers(1, 40), min_size=2, max_size=4)


def part(name: str, size: int) -> Corpus:
    """Labeled pairs of premises with up to three rows; nothing is in two parts."""
    table = pa.table(
        {
            "premise": [f"{name} {row // 3}" for row in range(size)],
            "hypothesis": [f"{name} {row} so" for row in range(size)],
            "label": pa.array([row % 3 for row in range(size)], pa.int8()),
        }
    )
    return make_corpus("labeled_pairs", table, name)


def corpus_of(sizes: list[int]) -> Corpus:
    return join_corpora([part(f"part {place}", size) for place, size in enumerate(sizes)])


def owners(corpus: Corpus, dealt: list[np.ndarray]) -> list[int]:
    """The source of each batch; all of its rows are of one source."""
    ends = np.cumsum(corpus.parts)
    sources = [set(np.searchsorted(ends, batch, side="right").tolist()) for batch in dealt]
    assert all(len(one) == 1 for one in sources)
    return [next(iter(one)) for one in sources]


def deal(
    corpus: Corpus, size: int, order: Order, mix: Mix, drop_last: bool = False
) -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    return batches(corpus, size, order, generator, drop_last=drop_last, mix=mix)


ORDERS: tuple[Order, ...] = ("file", "shuffled", "distinct", "groups", "shuffled_groups")


@pytest.mark.parametrize("order", ORDERS)
@given(sizes=sizes_of_parts, size=st.integers(3, 15))
def test_in_proportion_every_row_of_every_source_is_dealt(
    order: Order, sizes: list[int], size: int
) -> None:
    corpus = corpus_of(sizes)
    dealt = deal(corpus, size, order, "proportional")
    assert sorted(np.concatenate(dealt).tolist()) == list(range(sum(sizes)))
    if order in ("file", "shuffled"):
        counts = Counter(owners(corpus, dealt))
        assert counts == {place: -(-count // size) for place, count in enumerate(sizes)}
        # A short last batch is left out of each source, unless it is the only batch.
        counts = Counter(owners(corpus, deal(corpus, size, order, "proportional", True)))
        assert counts == {place: max(count // size, 1) for place, count in enumerate(sizes)}
    # Each source's batches are dealt as if it were alone, but for the draw.
    if order in ("file", "groups"):
        for place, count in enumerate(sizes):
            start = sum(sizes[:place])
            own = [b.tolist() for b in dealt if start <= b[0] < start + count]
            alone = batches(part(f"part {place}", count), size, order, None)
            assert own == [(start + batch).tolist() for batch in alone]


@pytest.mark.parametrize("order", ORDERS)
@given(sizes=sizes_of_parts, size=st.integers(3, 15), drop_last=st.booleans())
def test_in_turn_each_source_gives_as_many_batches_as_the_smallest(
    order: Order, sizes: list[int], size: int, drop_last: bool
) -> None:
    corpus = corpus_of(sizes)
    dealt = deal(corpus, size, order, "in_turn", drop_last)
    whose = owners(corpus, dealt)
    turns = len(dealt) // len(sizes)
    assert whose == list(range(len(sizes))) * turns
    rows = np.concatenate(dealt).tolist()
    assert len(rows) == len(set(rows))
    if order in ("file", "shuffled"):
        counts = [count - count % size if drop_last and count > size else count for count in sizes]
        assert turns == min(-(-count // size) for count in counts)
        assert len(rows) == sum(min(count, turns * size) for count in counts)


def test_in_file_order_the_sources_are_spread_evenly() -> None:
    corpus = corpus_of([8, 2, 4])
    assert owners(corpus, deal(corpus, 1, "file", "proportional")) == [
        *(0, 2, 0, 1, 0, 2, 0),
        *(0, 2, 0, 1, 0, 2, 0),
    ]
    for order in ("shuffled", "distinct", "shuffled_groups"):
        drawn = {
            tuple(owners(corpus, batches(corpus, 3, order, np.random.default_rng(seed))))
            for seed in range(4)
        }
        assert len(drawn) > 1


def test_the_parts_of_a_corpus() -> None:
    first, second = part("a", 5), part("b", 3)
    both, turned = join_corpora([first, second]), join_corpora([second, first])
    assert len(both) == 8 and both.parts == (5, 3) and both.source == "a + b"
    assert [(p.source, p.table.to_pylist()) for p in both.by_source()] == [
        (p.source, p.table.to_pylist()) for p in (first, second)
    ]
    assert both.table.column("premise").num_chunks == 1
    # The same rows in one file make other batches.
    one = make_corpus("labeled_pairs", both.table, "both")
    assert len({both.fingerprint, turned.fingerprint, one.fingerprint, first.fingerprint}) == 4
    moved = join_corpora([make_corpus(p.kind, p.table, "moved") for p in (first, second)])
    assert moved.fingerprint == both.fingerprint


def test_sources_with_fewer_negatives_have_empty_ones(tmp_path: Path) -> None:
    none = write(tmp_path / "none.csv", "sentence1,sentence2\ne,g\nf,h\n")
    two = write(tmp_path / "two.csv", "anchor,positive,negative_1,negative_2\na,b,c,d\n")
    corpus = load_triplets(f"{none} + {two} + {none}", 1)
    assert corpus.parts == (1, 1, 1)
    assert corpus.negatives() == ("negative_1", "negative_2")
    assert rows_of(corpus) == [("e", "g", "", ""), ("a", "b", "c", "d"), ("e", "g", "", "")]


def test_every_kind_of_rows_is_mixed_and_limited_by_source() -> None:
    for kind in sorted(set(KINDS) - {"nothing"}):
        alone, twice = load(kind, "toy", 7), load(kind, "toy + toy", 7)
        assert (len(alone), twice.parts) == (7, (7, 7))
        assert alone.text_columns() == twice.text_columns()
        assert twice.sentences() == alone.sentences()
    assert len(load("nothing", "toy + no such source")) == 0
    with pytest.raises(DataError, match=r"data.source: snil: .* Did you mean snli"):
        load("sentences", "toy + snil")


def test_how_several_sources_are_written() -> None:
    def source(value: object) -> str:
        return parse_dotted({"method.name": "scl", "data.source": value}, "test").data.source

    both: list[object] = [["toy", "snli"], ("toy", "snli"), "toy + snli", "toy  +  snli"]
    assert {source(value) for value in both} == {"toy + snli"}
    assert source(["toy"]) == "toy"
    assert source("a+b.csv") == "a+b.csv"
    assert source_names("toy + snli") == ("toy", "snli") and source_names("toy") == ("toy",)
    torn = r"must be a source, or several separated by ' \+ '"
    faults: list[tuple[object, str]] = [
        *((value, torn) for value in (["toy", ""], "toy +", "+ toy", "a +  + b")),
        ([], "must not be empty"),
        ([1], "must be text"),
    ]
    for value, sentence in faults:
        with pytest.raises(ConfigError, match=sentence):
            source(value)


def test_what_is_trained_on_the_toy_alone_is_measured_on_it() -> None:
    for source, data in (("toy", "toy"), ("toy + toy", "toy"), ("toy + snli", "root")):
        config = parse_dotted({"method.name": "scl", "data.source": source}, "test")
        assert evaluation_data(config) == data
        assert is_toy(source) == (data == "toy")


def test_labeled_pairs_are_not_torn() -> None:
    for method, order, orders in (
        ("scl", "shuffled", "file, groups or shuffled_groups"),
        ("scl", "distinct", "file, groups or shuffled_groups"),
        ("clsr", "groups", "file, shuffled or distinct"),
        ("clsr", "shuffled_groups", "file, shuffled or distinct"),
    ):
        with pytest.raises(ConfigError, match=f"must be {orders} for a method"):
            parse_dotted({"method.name": method, "data.order": order}, "test")
