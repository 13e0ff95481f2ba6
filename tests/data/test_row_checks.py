"""Faults of training rows that are planted, against a quadratic loop."""

import json
import unicodedata
from collections import defaultdict
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
from tune_sentcl.data.rows.scripts import scripts
from tune_sentcl.data.tables import Origin
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


alphabet = "ab é1-µªжЖёλあア語한אبकก"
scripted = st.lists(st.one_of(st.none(), st.text(alphabet, max_size=5)), min_size=2, max_size=60)


@given(scripted)
def test_each_script_is_counted_and_a_rare_one_named_with_its_rows(
    column: list[str | None],
) -> None:
    # Finds texts that are not read, and row numbers of one column that are taken for another's.
    rows = (len(column) + 1) // 2
    texts = [*column, None][: 2 * rows]
    expected: dict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        names = {unicodedata.name(letter) for letter in text or "" if letter not in "1- µª"}
        latin = {"Latin"} if "ª" in (text or "") else set()
        for word in latin | {name.partition(" ")[0].capitalize() for name in names}:
            expected[{"Cjk": "Han"}.get(word, word)].append(place)
    table = pa.table(
        {"anchor": pa.array(texts[:rows], pa.string()), "positive": pa.array(texts[rows:])}
    )
    first, *rare = scripts(table, Origin("mine.csv"))
    filled = sum(bool(text) for text in texts)
    common = {name for name, found in expected.items() if len(found) >= 0.05 * filled}
    assert all(f"{n} in {len(expected[n]) / filled:.0%} of the texts" in first for n in common)
    assert len(rare) == len(expected) - len(common)
    for line in rare:
        found = expected[line.partition(" ")[0]]
        places = sorted({place % rows + 1 for place in found})
        where = f"mine.csv row{'s'[: len(places) - 1]} {', '.join(map(str, places[:5]))}"
        shown = f"(one of them: {texts[found[0]]!r})"
        assert f" in {len(found)} text" in line and where in line and line.endswith(shown)


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
