"""Anchors with positives and negatives, from every source that has them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import (
    REAL_ROOT,
    load_positive_pairs,
    load_triplets,
    needs_real_data,
    write_nli,
    write_rows,
)
from disk_samples import write
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config import DataConfig
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows, nli_triplets
from tune_sentcl.data.toy import toy_nli
from tune_sentcl.errors import DataError

Labeled = tuple[str, str, int]


def load(source: str, limit: int | None = None, root: Path | None = None) -> Corpus:
    return load_triplets(source, limit, root, 4.0)


def rows_of(corpus: Corpus) -> list[tuple[str, ...]]:
    return list(zip(*(corpus.texts(name) for name in corpus.text_columns()), strict=True))


def by_loops(pairs: Sequence[Labeled]) -> list[tuple[str, ...]]:
    """For each premise its first entailed and its first contradicted hypothesis."""
    found: list[tuple[str, ...]] = []
    for premise in dict.fromkeys(pair[0] for pair in pairs):
        true = [h for p, h, label in pairs if p == premise and label == 0]
        false = [h for p, h, label in pairs if p == premise and label == 2]
        if true and false:
            found.append((premise, true[0], false[0]))
    return found


def test_numbered_negatives_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    count = 11
    negatives = {f"negative_{place}": [f"n{place}"] for place in range(count, 0, -1)}
    columns = {"positive": ["b"], **negatives, "anchor": ["a"], "negative_x": ["no"]}
    for source in write_rows(tmp_path / "rows", columns):
        corpus = load(source)
        expected = ("a", "b", *(f"n{place}" for place in range(1, count + 1)))
        assert rows_of(corpus) == [expected], source
        assert len(corpus.sentences()) == count + 2


@pytest.mark.parametrize(
    "name", ["negative_0", "negative_01", "negative1", "negative_", "negative_1_2"]
)
def test_a_negative_under_a_name_of_its_own_is_not_dropped(name: str, tmp_path: Path) -> None:
    columns = {"anchor": ["a"], "positive": ["b"], "negative_1": ["c"], name: ["d"]}
    for source in write_rows(tmp_path / "rows", columns):
        with pytest.raises(DataError, match=f": {name}: the columns of negatives are"):
            load(source)
        # Nobody asks for its negatives.
        assert len(load_positive_pairs(source, None, None, 4.0)) == 1


def test_lists_of_negatives_become_columns(tmp_path: Path) -> None:
    lists: list[list[str] | None] = [["x", "y", "z"], [], None, ["w"], ["", "v"]]
    table = pa.table({"anchor": list("abcde"), "positive": list("fghij"), "negatives": lists})
    pq.write_table(table, tmp_path / "a.parquet")
    lines = (json.dumps(row) for row in table.to_pylist())
    write(tmp_path / "a.jsonl", "".join(f"{line}\n" for line in lines))
    datasets.Dataset.from_dict(table.to_pydict()).save_to_disk(str(tmp_path / "saved"))
    for name in ("a.parquet", "a.jsonl", "saved"):
        assert rows_of(load(str(tmp_path / name))) == [
            ("a", "f", "x", "y", "z"),
            ("b", "g", "", "", ""),
            ("c", "h", "", "", ""),
            ("d", "i", "w", "", ""),
            ("e", "j", "", "v", ""),
        ]
    write(tmp_path / "b.jsonl", '{"anchor": "a", "positive": "b", "negatives": null}\n' * 2)
    assert rows_of(load(str(tmp_path / "b.jsonl"))) == [("a", "b")] * 2
    # A part of a table is read as what it is.
    pq.write_table(table.slice(1, 2), tmp_path / "none.parquet")
    assert rows_of(load(str(tmp_path / "none.parquet"))) == [("b", "g"), ("c", "h")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "anchor,positive,anchor\na,b,c\n", "a.csv: anchor: two columns have this role"),
        (
            "a.tsv",
            "anchor\tnegative\tpositive\tnegative\na\tb\tc\td\n",
            "a.tsv: negative: two columns",
        ),
        ("a.jsonl", '{"anchor": "a\\ud800", "positive": "b"}\n', "line 1: anchor .*surrogate"),
        ("a.jsonl", '{"anchor": "a", "positive": "b", "anchor": "c"}\n', "line 1: .*twice"),
    ],
)
def test_what_cannot_be_read_says_so(tmp_path: Path, name: str, content: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(str(write(tmp_path / name, content)))


def test_a_name_that_nobody_reads_may_stand_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,anchor,positive,id\n1,a,b,2\n")
    assert rows_of(load(str(path))) == [("a", "b")]


def test_what_is_no_triplet_is_refused(tmp_path: Path) -> None:
    def fault(columns: Mapping[str, Sequence[object]]) -> str:
        pq.write_table(pa.table(dict(columns)), tmp_path / "a.parquet")
        with pytest.raises(DataError) as error:
            load(str(tmp_path / "a.parquet"))
        return str(error.value)

    assert "row 2: anchor = ' ': a sentence must not be blank" in fault(
        {"anchor": ["a", " "], "positive": ["b", "c"]}
    )
    assert "row 1: positive = None: a sentence must not be blank" in fault(
        {"anchor": ["a"], "positive": pa.array([None], pa.string())}
    )
    assert "the columns are anchor; triplets need anchor and positive" in fault({"anchor": ["a"]})
    assert "the column must hold text" in fault(
        {"anchor": ["a"], "positive": ["b"], "negative": [1]}
    )
    lists = {"anchor": ["a"], "positive": ["b"], "negatives": ["c"]}
    assert "the column must hold lists of sentences, and holds string" in fault(lists)
    assert len(load_positive_pairs(str(tmp_path / "a.parquet"))) == 1  # its negatives are not read
    labeled = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": ["entailment", "neutral"]}
    assert "no premise has a row labeled entailment and one labeled contradiction" in fault(
        labeled
    )
    assert "the columns are text; triplets need anchor" in fault({"text": ["a"]})
    empty = pa.array([], pa.string())
    assert "there are no rows" in fault({"anchor": empty, "positive": empty})


@given(
    pairs=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("uvwxyz"), st.integers(0, 2)),
        min_size=1,
    )
)
def test_labeled_pairs_give_what_loops_give(pairs: list[Labeled]) -> None:
    premises, hypotheses, labels = zip(*pairs, strict=True)
    table = pa.table({"premise": premises, "hypothesis": hypotheses})
    table = table.append_column("label", pa.array(labels, pa.int8()))
    made = nli_triplets(table)
    assert [tuple(row.values()) for row in made.to_pylist()] == by_loops(pairs)


def test_labeled_files_and_the_toy(tmp_path: Path) -> None:
    rows: list[tuple[object, object, object]] = [
        ("p", "no", "contradiction"),
        ("q", "yes", "entailment"),
        ("p", "maybe", "neutral"),
        ("p", "what", "-"),
        ("p", "yes", "entailment"),
        ("p", "never", "contradiction"),
    ]
    source = str(write_nli(tmp_path / "a.parquet", rows))
    assert rows_of(load(source)) == [("p", "yes", "no")]
    toy = [tuple(row.values()) for row in toy_nli().to_pylist()]
    corpus = load("toy")
    assert rows_of(corpus) == by_loops(toy) and len(corpus) == 86
    assert corpus.fingerprint != load("toy", 50).fingerprint


def test_pairs_have_no_negatives(tmp_path: Path) -> None:
    columns = {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"]}
    source = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({**columns, "score": [5.0, 3.9, 4.0]}), source)
    corpus = load(source)
    assert rows_of(corpus) == [("a", "d"), ("c", "f")] and not corpus.negatives()
    config = DataConfig(source=source, min_score=5.0)
    assert rows_of(load_rows("triplets", config, None)) == [("a", "d")]
    pq.write_table(pa.table(columns), source)
    assert len(load(source)) == 3


def test_simcses_own_file_counts_only_when_whole(tmp_path: Path) -> None:
    head = "sent0,sent1,hard_neg\n"
    write(tmp_path / "nli/nli_for_simcse.csv", f'{head}"a, b",c,d\ne,f,g\n')
    message = r"nli_for_simcse\.csv.* 2 rows: nli-simcse stands for the whole set of 275,601 rows"
    with pytest.raises(DataError, match=message):
        load("nli-simcse", None, tmp_path)
    assert rows_of(load("nli-simcse", 2, tmp_path)) == [("a, b", "c", "d"), ("e", "f", "g")]
    with pytest.raises(DataError, match="only 2 fitting rows of nli-simcse"):
        load("nli-simcse", 3, tmp_path)


@needs_real_data
@pytest.mark.parametrize(
    ("source", "count"), [("snli-partial", 15_030), ("mnli-partial", 342), ("nli-partial", 15_372)]
)
def test_real_premises_with_both_labels(source: str, count: int) -> None:
    assert len(load(source, None, REAL_ROOT)) == count


@needs_real_data
def test_real_benchmark_pairs() -> None:
    assert len(load("sts-b", None, REAL_ROOT)) == 1_406
