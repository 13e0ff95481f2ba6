"""Faults of training rows that are planted, against a quadratic loop."""

import json
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from data_samples import REAL_ROOT, needs_real_data
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.config import DataConfig
from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.rows.row_checks import overlaps, problems, refuse_overlaps
from tune_sentcl.data.task import StsSubset, StsTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.errors import DataError

texts = st.sampled_from(["pay", "Pay ", "by card", "BY CARD", "closed", "open"])
rows_of = st.lists(st.tuples(texts, texts, st.one_of(texts, st.just(""))), min_size=1, max_size=9)


def triplets(*rows: tuple[str, str, str]) -> Corpus:
    columns = dict(zip(("anchor", "positive", "negative_1"), zip(*rows, strict=True), strict=True))
    return make_corpus("triplets", pa.table(columns), "mine.csv")


def folded(text: str) -> str:
    return text.strip().lower()


@given(rows_of)
def test_each_kind_of_fault_is_counted_as_by_a_loop(rows: list[tuple[str, str, str]]) -> None:
    plain = [tuple(map(folded, row)) for row in rows]
    repeated = sum(row in plain[:place] for place, row in enumerate(plain))
    trivial = sum(anchor == positive for anchor, positive, _ in plain)
    false = sum(
        bool(one[2]) and any((one[0], one[2]) == other[:2] for other in plain) for one in plain
    )
    expected = [
        f"rows {what}: {count}"
        for count, what in (
            (repeated, "that repeat an earlier row"),
            (trivial, "with a positive equal to the anchor"),
            (false, "with a negative_1 that is a positive of the same anchor"),
        )
        if count
    ]
    found = map(str, problems(triplets(*rows)))
    assert [text.partition(" (the first")[0] for text in found] == expected


@given(rows_of, rows_of)
def test_overlaps_are_those_of_a_loop(
    rows: list[tuple[str, str, str]], others: list[tuple[str, str, str]]
) -> None:
    left, right, _ = zip(*others, strict=True)
    task = StsTask("own", "dev", (StsSubset("own", left, right, (1.0,) * len(others)),))
    scored = [{folded(a), folded(b)} for a, b, _ in others]
    count = sum({folded(a), folded(b)} in scored for a, b, _ in rows)
    found = overlaps(triplets(*rows), [task])
    assert [one.rows for one in found] == ([count] if count else [])


def test_a_query_that_is_trained_on_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    (folder / "qrels").mkdir(parents=True)
    document = {"_id": "d", "title": "Payment", "text": "by card"}
    (folder / "corpus.jsonl").write_text(json.dumps(document))
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(["How to pay?", "other"])]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    for split, query in (("dev", "q0"), ("test", "q1")):
        (folder / "qrels" / f"{split}.tsv").write_text(f"{query}\td\t1\n")
    tasks = read_own(own_source(f"shop={folder}"))
    corpus = triplets(("how to pay? ", "By card", ""), ("how to pay?", "open", ""))
    found = overlaps(corpus, tasks)
    assert [(one.task, one.split, one.rows) for one in found] == [("shop", "dev", 1)]
    with pytest.raises(DataError, match="shop dev contains 1 of the training rows"):
        refuse_overlaps(corpus, found)
    labeled = tmp_path / "intents.csv"
    lines = [f"{word} {n},{word}" for word, n in product(("pay", "open"), range(12))]
    labeled.write_text("text,label\n" + "\n".join(lines))
    tasks = read_own(own_source(f"intents={labeled}"))
    assert [
        one.rows for one in overlaps(triplets(("PAY 3", "a", ""), ("b", "open 11", "")), tasks)
    ]


@needs_real_data
def test_sts_b_is_drawn_from_sts12_to_16() -> None:
    """4,759 of the scored pairs of STS12 to STS16 are training pairs of STS-B."""
    corpus = load_rows("graded_pairs", DataConfig(source="sts-b"), REAL_ROOT)
    tasks = [task for task in load_sts("root", REAL_ROOT) if task.name.startswith("STS1")]
    trained = {
        frozenset((folded(one), folded(other)))
        for one, other in zip(corpus.texts("sentence1"), corpus.texts("sentence2"), strict=True)
    }
    pairs = [
        frozenset((folded(one), folded(other)))
        for task in tasks
        for subset in task.subsets
        for one, other in zip(subset.sentences1, subset.sentences2, strict=True)
    ]
    assert (len(pairs), sum(pair in trained for pair in pairs)) == (12_544, 4_759)
    rows = {one.task: one.rows for one in overlaps(corpus, tasks)}
    assert rows == {"STS12": 1008, "STS13": 597, "STS14": 1864, "STS15": 1107, "STS16": 202}
