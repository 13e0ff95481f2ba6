"""Columns that judge a pair, deal rows to splits, or are not read: one rule for one file."""

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import load_positive_pairs, load_triplets, rows_of, write_forms
from disk_samples import write

from tune_sentcl.config import DataConfig
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.errors import DataError

PAIR: dict[str, list[Any]] = {"anchor": ["a", "b", "c"], "positive": ["x", "y", "z"]}
KEPT = [("a", "x"), ("c", "z")]


@pytest.mark.parametrize(
    ("name", "values", "condition"),
    [
        ("Is_Duplicate", ["1", "0", "1"], "Is_Duplicate = 1"),
        ("relevance", [5, 0, 4], "relevance >= 4"),
        ("score", ["5,0", "1,5", "4,2"], "score >= 4"),
        ("similarity", [1.0, -1.0, 1.0], "similarity = 1"),
        ("match", ["yes", "no", "yes"], "match = yes"),
        ("label", ["duplicate", "not_duplicate", "duplicate"], "label = duplicate"),
        ("gold_label", ["entailment", "-", "entailment"], "gold_label = entailment"),
        ("label", [1, -1, 1], "label = 1"),
        ("of any name", ["1", "0", "1"], "of any name = 1"),
        ("of any name", [True, False, True], "of any name = true"),
    ],
)
def test_a_column_that_judges_the_pairs_selects_the_positives_for_every_method(
    tmp_path: Path, name: str, values: list[Any], condition: str
) -> None:
    for source in write_forms(tmp_path / "rows", {**PAIR, name: values, "id": [7, 8, 9]}):
        for load in (load_triplets, load_positive_pairs):
            corpus = load(source)
            assert rows_of(corpus) == KEPT
            told, unread = corpus.notes
            assert told == f"rows with {condition} are read as positives: 2 of 3"
            assert unread == "these columns are not read: id"


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("label", [0, 1, 2], "label = 0, 1, 2: .*do not say which pairs match.*ignored = "),
        ("label", ["good", "bad", "bad"], "label = bad, good: .*do not say"),
        ("is_duplicate", [0, 0, 0], "is_duplicate = 0: .*do not say"),
        (
            "score",
            [95, 12, 60],
            "score: the scores reach 95, but data.min_score = 4 is for scores up to 5",
        ),
        ("similarity", [0.2, 0.9, 0.2], "similarity: .*from 0.2 to 0.9.*ignored = "),
        ("relevance", [0.2, 0.9, 0.4], "relevance: .*from 0.2 to 0.9.*min_score.*ignored = "),
    ],
)
def test_a_judgment_that_cannot_be_read_is_refused_and_can_be_ignored(
    tmp_path: Path, name: str, values: list[Any], rule: str
) -> None:
    for source in write_forms(tmp_path / "rows", {**PAIR, name: values}):
        for load in (load_triplets, load_positive_pairs):
            with pytest.raises(DataError, match=rule):
                load(source)
            assert len(load(source, columns={"ignored": name.upper()})) == 3


def test_a_column_of_two_values_judges_only_if_no_name_says_so(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {**PAIR, "label": [1, 0, 1], "has_image": [0, 1, 1]}
    for source in write_forms(tmp_path / "rows", columns):
        corpus = load_triplets(source)
        assert rows_of(corpus) == KEPT
        assert "these columns are not read: has_image" in corpus.notes
    for source in write_forms(tmp_path / "alike", {**PAIR, "weight": [0.5, 0.5, 0.5]}):
        assert len(load_triplets(source)) == 3


def test_lists_of_judgments_and_embeddings_in_parquet_are_not_forgotten(tmp_path: Path) -> None:
    columns = {"query": ["q"], "pos": [["a", "b"]], "labels": [[1, 0]], "vector": [[0.5, 0.1]]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "set"))
    for source in (tmp_path / "a.parquet", tmp_path / "set"):
        corpus = load_triplets(source)
        assert rows_of(corpus) == [("q", "a")]
        assert corpus.notes[-1] == "these columns are not read: vector"


def test_a_column_that_the_user_names_is_the_only_one_that_judges(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {**PAIR, "label": [0, 1, 0], "stars": [5, 1, 4]}
    (source, *_) = write_forms(tmp_path / "rows", columns)
    assert rows_of(load_triplets(source, columns={"score": "stars"})) == KEPT


@pytest.mark.parametrize(
    ("column", "values"), [("lang", ["en", "de", "en"]), ("year", [2001, 2002, 2001])]
)
def test_two_values_that_are_no_judgment_are_named_and_not_read(
    tmp_path: Path, column: str, values: list[Any]
) -> None:
    for source in write_forms(tmp_path / "rows", {**PAIR, column: values}):
        corpus = load_triplets(source)
        assert len(corpus) == 3
        assert corpus.notes == (f"these columns are not read: {column}",)


def test_numbers_beside_a_premise_may_mean_either_and_names_do_not(tmp_path: Path) -> None:
    """Sets of duplicates mark a match by 1, RTE and QNLI entailment by 0."""
    columns: dict[str, list[Any]] = {
        "premise": ["a", "b", "c"],
        "hypothesis": ["x", "y", "z"],
    }
    for number, labels in enumerate(([0, 1, 0], [0, 1, -1])):
        for source in write_forms(tmp_path / f"{number}", {**columns, "label": labels}):
            config = DataConfig(source=str(source))
            for kind in ("labeled_pairs", "positive_pairs", "triplets"):
                with pytest.raises(
                    DataError, match=r"label: the column holds only 0 and 1.*anchor and pos"
                ):
                    load_rows(kind, config, None)
            with pytest.raises(DataError, match=r"label = .*do not say which pairs match"):
                load_rows("graded_pairs", config, None)
    for source in write_forms(tmp_path / "nli", {**columns, "label": [0, 1, 2]}):
        with pytest.raises(DataError, match=r"label = 0, 1, 2: .*do not say"):
            load_rows("graded_pairs", DataConfig(source=str(source)), None)
    two = {**columns, "label": ["entailment", "not_entailment", "entailment"]}
    for source in write_forms(tmp_path / "two", two):
        for load in (load_triplets, load_positive_pairs):
            assert rows_of(load(source)) == KEPT


@pytest.mark.parametrize(
    ("names", "row"),
    [
        (["not_equivalent", "equivalent"], ("b", "y")),
        (["entailment", "not_entailment"], ("a", "x")),
    ],
)
def test_the_names_of_classes_rule_over_their_numbers(
    tmp_path: Path, names: list[str], row: tuple[str, str]
) -> None:
    rows = datasets.Dataset.from_dict(
        {"sentence1": ["a", "b"], "sentence2": ["x", "y"], "label": [0, 1]},
        features=datasets.Features(
            sentence1=datasets.Value("string"),
            sentence2=datasets.Value("string"),
            label=datasets.ClassLabel(names=names),
        ),
    )
    rows.save_to_disk(str(tmp_path / "set"))
    assert rows_of(load_triplets(tmp_path / "set")) == [row]
    graded = load_rows("graded_pairs", DataConfig(source=str(tmp_path / "set")), None)
    assert graded.numbers("score").tolist() == [float(row == ("a", "x")), float(row != ("a", "x"))]


MINED = [
    {"query": "q", "pos": ["a", "b"], "neg": ["x"], "pos_scores": [1, 0], "neg_scores": [0.5]},
    {"query": "r", "pos": ["c"], "neg": ["z"], "pos_scores": [0], "neg_scores": [0.5]},
]


def test_lists_of_scores_select_among_the_lists_of_positives(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in MINED))
    corpus = load_triplets(path)
    assert rows_of(corpus) == [("q", "a", "x")]
    assert "these columns are not read: neg_scores" in corpus.notes
    taught = [{**line, "pos_scores": [9.5, 3.25][: len(line["pos"])]} for line in MINED]
    path = write(tmp_path / "b.jsonl", "".join(f"{json.dumps(line)}\n" for line in taught))
    with pytest.raises(DataError, match=r'pos_scores = .*ignored = "pos_scores"'):
        load_triplets(path)
    assert len(load_triplets(path, columns={"ignored": "pos_scores"})) == 3
    wrong = [{**line, "neg_scores": [1 for _ in line["neg"]]} for line in MINED]
    path = write(tmp_path / "c.jsonl", "".join(f"{json.dumps(line)}\n" for line in wrong))
    with pytest.raises(
        DataError, match="neg_scores = 1: this column says that some negatives match"
    ):
        load_triplets(path)


def test_rows_of_other_splits_are_not_trained_on(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {**PAIR, "split": ["train", " Validation", "TRAIN "]}
    for source in write_forms(tmp_path / "rows", columns):
        corpus = load_triplets(source)
        assert rows_of(corpus) == KEPT
        assert (corpus.notes, corpus.splits) == (
            ("2 of 3 rows belong to the split train",),
            ("dev",),
        )
        dev = load_rows("triplets", DataConfig(source=str(source)), None, "dev")
        assert rows_of(dev) == [("b", "y")]
    for split, rule in (
        ("fold 1", "split = 'fold 1': must be train"),
        ("test", "no row belongs to"),
    ):
        for source in write_forms(tmp_path / split, {**PAIR, "split": [split] * 3}):
            with pytest.raises(DataError, match=rule):
                load_triplets(source)


@pytest.mark.parametrize(
    ("names", "row"),
    [
        (("hard_negative",), ("a", "x", "n0")),
        (("hard-negatives",), ("a", "x", "n0")),
        (("hard_negatives_1", "hard_negatives_2"), ("a", "x", "n0", "n1")),
        (("negative1", "Negative_2"), ("a", "x", "n0", "n1")),
    ],
)
def test_negatives_under_the_names_of_other_tools_are_read(
    tmp_path: Path, names: tuple[str, ...], row: tuple[str, ...]
) -> None:
    texts: list[Any] = [[f"n{place}"] for place in range(len(names))]
    columns = {"anchor": ["a"], "positive": ["x"], **dict(zip(names, texts, strict=True))}
    for source in write_forms(tmp_path / "rows", columns):
        assert rows_of(load_triplets(source)) == [row]


def test_rows_that_the_limit_leaves_out_are_not_counted_as_blank(tmp_path: Path) -> None:
    rows = "".join(f"{'' if n % 2 else n},b{n}\n" for n in range(10))
    path = write(tmp_path / "a.csv", f"anchor,positive\n{rows}")
    assert load_triplets(path, blanks="drop", limit=2).dropped == 1
    assert load_triplets(path, blanks="drop").dropped == 5
