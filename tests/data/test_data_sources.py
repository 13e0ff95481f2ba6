"""Rows of each kind from files of other kinds, and from the sources that have a name."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import (
    REAL_ROOT,
    ROWS,
    load_graded_pairs,
    load_nli,
    load_positive_pairs,
    load_sentences,
    load_triplets,
    needs_real_data,
    rows_of,
    write_forms,
    write_nli,
    write_table,
)
from disk_samples import write
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.kinds import LABELS
from tune_sentcl.data.rows.load import nli_triplets
from tune_sentcl.data.tables import read_table
from tune_sentcl.data.toy import toy_graded, toy_nli
from tune_sentcl.errors import DataError

Labeled = tuple[str, str, int]
PAIRS = [("a cat runs", "a cat is running"), ("a dog", ""), ("a cat runs", "a dog")]
SCORES = [5.0, 3.999, 4.0]


# Rows of other kinds


def test_pairs_give_their_distinct_sentences_the_first_sides_first(tmp_path: Path) -> None:
    expected = ["a cat runs", "a dog", "a cat is running", ""]
    left, right = zip(*PAIRS, strict=True)
    for names in (("sentence1", "sentence2"), ("premise", "hypothesis")):
        columns = dict(zip(names, (left, right), strict=True))
        for source in write_forms(tmp_path / names[0], columns):
            assert load_sentences(source).texts("text") == expected
            assert load_sentences(source, 3).texts("text") == expected[:3]


def test_a_limit_reads_no_more_of_a_parquet_file_than_it_must(tmp_path: Path) -> None:
    texts = ["", *(f"sentence {row}" for row in range(1, 20))]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [None, *texts[1:]]}), path, row_group_size=10)
    for limit in (1, 9, 10, 11, 20, 21):
        assert load_sentences(path, limit).texts("text") == texts[:limit]
    assert len(read_table(path, 7)[0]) == 7


def test_labeled_pairs_give_the_entailed(tmp_path: Path) -> None:
    more = [("A man eats.", "x", "-"), ("A dog.", "It.", "entailment")]
    path = write_nli(tmp_path / "a.parquet", [*ROWS, *more])
    corpus = load_positive_pairs(path)
    assert rows_of(corpus) == [("A man eats.", "A person eats."), ("A dog.", "It.")]
    assert rows_of(load_positive_pairs(path, 1, min_score=9.0)) == rows_of(corpus)[:1]
    # The same pairs without a label are the same rows.
    left, right = zip(*rows_of(corpus), strict=True)
    plain = write_table(tmp_path / "b.parquet", {"sentence1": left, "sentence2": right})
    assert load_positive_pairs(plain).fingerprint == corpus.fingerprint


def test_graded_pairs_give_those_of_a_high_score(tmp_path: Path) -> None:
    left, right = zip(*PAIRS, strict=True)
    columns = {"sentence1": left, "sentence2": right, "score": SCORES}
    for source in write_forms(tmp_path / "pairs", columns):
        assert load_graded_pairs(source).numbers("score").tolist() == SCORES
        assert rows_of(load_positive_pairs(source, 2, min_score=3.0)) == PAIRS[:2]
        for load in (load_positive_pairs, load_triplets):
            assert rows_of(load(source)) == [PAIRS[0], PAIRS[2]]


@pytest.mark.parametrize("load", [load_triplets, load_positive_pairs])
@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        (["0.95", "0.05", "0.9"], "= 4 or above; the scores are from 0.05 to 0.95"),
        (["-1", "0", "1"], "the scores are from -1 to 1"),
        (["0"], "the scores are from 0 to 0"),
    ],
)
def test_scores_below_the_least_say_their_range(
    load: Callable[..., Corpus], scores: list[str], sentence: str, tmp_path: Path
) -> None:
    rows = "".join(f"a,b,{score}\n" for score in scores)
    path = write(tmp_path / "a.csv", f"sentence1,sentence2,score\n{rows}")
    with pytest.raises(DataError, match=rf"{sentence}\. Set data\.min_score"):
        load(path)
    assert len(load(path, min_score=-1)) == len(scores)


def test_unlabelled_rows_are_dropped_before_the_limit(tmp_path: Path) -> None:
    numbers = [0, 1, 2, 1]
    rows = [(a, b, number) for (a, b, _), number in zip(ROWS, numbers, strict=True)]
    path = write_nli(
        tmp_path / "a.parquet", [("no", "label", -1), rows[0], ("", "", -1), *rows[1:]]
    )
    names = [("no", "label", "-"), ROWS[0], ("", "blank", "-"), *ROWS[1:]]
    assert load_nli(path).numbers("label").tolist() == numbers
    named = load_nli(write_nli(tmp_path / "b.parquet", names))
    assert named.fingerprint == load_nli(path).fingerprint
    # The head of a table and a table of as many rows are the same content.
    short = write_nli(tmp_path / "c.parquet", rows[:3])
    assert load_nli(path, 3).fingerprint == load_nli(short).fingerprint


def triplets_by_loops(pairs: Sequence[Labeled]) -> list[tuple[str, ...]]:
    """For each premise its first entailed and its first contradicted hypothesis."""
    triplets: list[tuple[str, ...]] = []
    for premise in dict.fromkeys(pair[0] for pair in pairs):
        true = [h for p, h, label in pairs if p == premise and label == 0]
        false = [h for p, h, label in pairs if p == premise and label == 2]
        if true and false:
            triplets.append((premise, true[0], false[0]))
    return triplets


@given(
    pairs=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("uvwxyz"), st.integers(0, 2)),
        min_size=1,
    )
)
def test_labeled_pairs_give_the_triplets_of_loops(pairs: list[Labeled]) -> None:
    premises, hypotheses, labels = zip(*pairs, strict=True)
    table = pa.table({"premise": premises, "hypothesis": hypotheses})
    table = table.append_column("label", pa.array(labels, pa.int8()))
    made = nli_triplets(table)
    assert [tuple(row.values()) for row in made.to_pylist()] == triplets_by_loops(pairs)


def test_numbered_negatives_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    negatives = {f"negative_{place}": [f"n{place}"] for place in range(11, 0, -1)}
    columns = {"positive": ["b"], **negatives, "anchor": ["a"], "negative_x": ["no"]}
    for source in write_forms(tmp_path / "rows", columns):
        corpus = load_triplets(source)
        assert rows_of(corpus) == [("a", "b", *(f"n{place}" for place in range(1, 12)))], source


def test_lists_of_negatives_become_columns(tmp_path: Path) -> None:
    lists: list[list[str] | None] = [["x", "y", "z"], [], None, ["w"], ["", "v"]]
    table = pa.table({"anchor": list("abcde"), "positive": list("fghij"), "negatives": lists})
    write_table(tmp_path / "a.parquet", table)
    write(tmp_path / "a.jsonl", table.to_pandas().to_json(orient="records", lines=True))
    datasets.Dataset(table).save_to_disk(str(tmp_path / "saved"))
    for source in tmp_path.iterdir():
        assert rows_of(load_triplets(source)) == [
            ("a", "f", "x", "y", "z"),
            ("b", "g", "", "", ""),
            ("c", "h", "", "", ""),
            ("d", "i", "w", "", ""),
            ("e", "j", "", "v", ""),
        ]
    write(tmp_path / "b.jsonl", '{"anchor": "a", "positive": "b", "negatives": null}\n' * 2)
    assert rows_of(load_triplets(tmp_path / "b.jsonl")) == [("a", "b")] * 2
    # A part of a table is read as what it is.
    part = write_table(tmp_path / "none.parquet", table.slice(1, 2))
    assert rows_of(load_triplets(part)) == [("b", "g"), ("c", "h")]


# Sources that have a name


def test_the_toy_gives_rows_of_every_kind() -> None:
    pairs = [tuple(row.values()) for row in toy_nli().to_pylist()]
    premises, hypotheses, _ = zip(*pairs, strict=True)
    assert load_sentences("toy").texts("text") == list(dict.fromkeys(premises + hypotheses))
    assert rows_of(load_positive_pairs("toy")) == [pair[:2] for pair in pairs if pair[2] == 0]
    assert load_graded_pairs("toy").table.equals(toy_graded())
    assert rows_of(load_triplets("toy")) == triplets_by_loops(pairs)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_nli(tmp_path / "nli/snli_dev.parquet", ROWS)
    assert len(load_nli("~/nli/snli_dev.parquet")) == 4
    assert len(load_nli("snli-dev", None, Path("~"))) == 4


def snli_and_mnli(root: Path, whole: bool = True) -> Path:
    """Two files of other types whose labels have other numbers."""
    part = "" if whole else "_partial"
    labels = ("entailment", "entailment", "neutral", "-")
    rows = [(f"premise {row}", f"claim {row}", label) for row, label in enumerate(labels)]
    write_nli(root / f"nli/snli_train{part}.parquet", rows)
    text = datasets.Value("large_string")
    label = datasets.ClassLabel(names=[*LABELS[::-1]])
    features = datasets.Features(label=label, hypothesis=text, premise=text, genre=text)
    other = [
        {"premise": f"text {row}", "hypothesis": "it", "label": name, "genre": "x"}
        for row, name in enumerate(("entailment", "contradiction"))
    ]
    mnli = datasets.Dataset.from_list(other, features=features)
    mnli.to_parquet(str(root / f"nli/mnli_train{part}.parquet"))
    return root


def test_nli_is_snli_then_mnli(tmp_path: Path) -> None:
    root = snli_and_mnli(tmp_path, whole=False)
    both = load_nli("nli", 5, root)
    parts = [load_nli(name, None, root) for name in ("snli-partial", "mnli-partial")]
    assert rows_of(both) == [*rows_of(parts[0]), *rows_of(parts[1])]
    assert both.numbers("label").tolist() == [0, 0, 1, 0, 2]
    assert both.source == "nli/snli_train_partial.parquet + nli/mnli_train_partial.parquet"
    assert len(load_nli("nli", 4, root)) == 4
    assert load_nli("nli-partial", None, root).table.equals(both.table)
    assert len(load_positive_pairs("nli", 3, root)) == 3
    assert load_sentences("nli-partial", None, root).texts("text")[-1] == "it"
    (root / "nli/mnli_train_partial.parquet").unlink()
    with pytest.raises(DataError, match=r"data.source = nli: .*mnli_train\.parquet or nli/mnli_"):
        load_nli("nli", 9, root)
    write_nli(root / "nli/mnli_train.parquet", [("a", "b", 0), ("a", "b", 3)])
    with pytest.raises(DataError, match=r"^nli/mnli_train\.parquet row 2: label = 3"):
        load_nli("nli", 9, root)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("load", [load_nli, load_sentences, load_positive_pairs])
def test_a_part_does_not_go_by_the_name_of_the_whole(
    load: Callable[..., Corpus], whole: bool, tmp_path: Path
) -> None:
    root = snli_and_mnli(tmp_path, whole)
    for source, message in (
        ("snli", "3 examples: snli stands for the whole set of 549,367 examples"),
        ("mnli", "2 examples: mnli stands for the whole set of 392,702 examples"),
        ("nli", "3 examples: snli stands for the whole set of 549,367 examples"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            load(source, None, root)
        (fault,) = caught.value.faults
        assert fault.move.endswith("--set data.limit=N.")
        assert len(load(source, 1, root)) == 1


@pytest.mark.parametrize(
    "load",
    [
        partial(load_nli, "nli", 6),
        partial(load_nli, "snli", 4),
        partial(load_sentences, "mnli", 100),
        partial(load_positive_pairs, "nli", 314_315),
    ],
)
def test_a_papers_set_has_as_many_rows_as_the_limit_says(
    load: Callable[..., Corpus], tmp_path: Path
) -> None:
    root = snli_and_mnli(tmp_path)
    with pytest.raises(DataError, match=r"data\.limit: \d+: .* has only \d+ examples that fit"):
        load(root)
    assert len(load_nli(root / "nli/snli_train.parquet", 6, root)) == 3  # a file of one's own


def test_simcses_own_file_counts_only_when_whole(tmp_path: Path) -> None:
    head = "sent0,sent1,hard_neg\n"
    write(tmp_path / "nli/nli_for_simcse.csv", f'{head}"a, b",c,d\ne,f,g\n')
    message = r"nli_for_simcse\.csv.* 2 examples: nli-simcse stands for the whole set of 275,601 "
    with pytest.raises(DataError, match=message):
        load_triplets("nli-simcse", None, tmp_path)
    expected = [("a, b", "c", "d"), ("e", "f", "g")]
    assert rows_of(load_triplets("nli-simcse", 2, tmp_path)) == expected


def test_wiki_prefers_the_papers_file(tmp_path: Path) -> None:
    name = "wiki/enwiki_2015_sentences_1m.parquet"
    write_table(tmp_path / name, {"text": ["b"] * 1_000_000})
    corpus = load_sentences("wiki", None, tmp_path)
    assert (len(corpus), corpus.source) == (1_000_000, name)
    write(tmp_path / "wiki/wiki1m_for_simcse.txt", "a\n")
    corpus = load_sentences("wiki", 1, tmp_path)
    assert (corpus.texts("text"), corpus.source) == (["a"], "wiki/wiki1m_for_simcse.txt")


@pytest.mark.parametrize(
    "load", [load_nli, load_sentences, load_positive_pairs, load_graded_pairs, load_triplets]
)
def test_an_unknown_name_is_refused(load: Callable[..., Corpus]) -> None:
    for source, name in (("wikii", "wiki"), ("nliX", "nli")):
        known = r"must be a known source \(toy, sts-b, nli, nli-partial, snli, "
        with pytest.raises(DataError, match=rf"{known}.*Did you mean {name}\?"):
            load(source)


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("wiki", r"wiki/wiki1m_for_simcse\.txt or wiki/enwiki_2015"),
        ("nli", r"nli/snli_train\.parquet or nli/snli_train_partial\.parquet"),
        ("sts-b", r"STSBenchmark/sts-train\.csv: the file does not exist"),
    ],
)
def test_names_below_the_data_root_need_one(source: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"data.source = {source} needs a data root"):
        load_sentences(source)
    with pytest.raises(DataError, match=file):
        load_sentences(source, None, tmp_path)


# The real files


@needs_real_data
def test_real_benchmark_pairs() -> None:
    # The paper says "higher than 4" and counts 1,406; those above 4 are 1,052.
    assert len(load_positive_pairs("sts-b", None, REAL_ROOT)) == 1406
    assert len(load_positive_pairs("sts-b", None, REAL_ROOT, min_score=4.0001)) == 1052
    graded = load_graded_pairs("sts-b", None, REAL_ROOT)
    assert (len(graded), graded.source) == (5749, "STSBenchmark/sts-train.csv")
    assert graded.texts("sentence1")[0] == "a plane is taking off ."
    assert graded.numbers("score")[:2].tolist() == [5.0, 3.8]


@needs_real_data
def test_the_real_nli_sets() -> None:
    if (REAL_ROOT / "nli/snli_train.parquet").exists():
        pytest.skip("counted by the reader where the sets are whole")
    with pytest.raises(DataError, match="nli has only 111,832 examples that fit the method"):
        load_nli("nli", 10**6, REAL_ROOT)
    both = load_nli("nli-partial", None, REAL_ROOT)
    assert np.bincount(both.numbers("label")).tolist() == [42575, 37272, 31985]
    assert len(load_triplets("nli-partial", None, REAL_ROOT)) == 15_372
    first = load_nli("snli-first2000", None, REAL_ROOT)
    assert first.texts("premise")[0] == "A person on a horse jumps over a broken down airplane."
    assert (len(first), len(load_nli("snli-dev", None, REAL_ROOT))) == (2000, 9842)
