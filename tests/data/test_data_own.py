"""Yardsticks of the user's own: every layout is read, and what is damaged says where."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from data_samples import write_forms
from disk_samples import write
from own_samples import write_beir, write_labeled, write_lines, write_pairs

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.check import check_own
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import LabeledTask, OwnTask, RetrievalTask
from tune_sentcl.errors import DataError

PAIRS = [("a cat", "a dog", 1.5), ("007", "a spy", 4.0), ("red", "blue", -2.0)]
CLASSES = [(f"text {row}", "yes" if row % 2 else "no") for row in range(24)]


def read(path: Path) -> tuple[OwnTask, ...]:
    return read_own(OwnSource("mine", str(path)))


def test_pairs_of_every_form_are_the_same_task(tmp_path: Path) -> None:
    (task,) = read(write_pairs(tmp_path / "pairs.tsv", PAIRS))
    assert isinstance(task, StsTask)
    assert (task.name, task.split, task.suite) == ("mine", "dev", "own")
    (subset,) = task.subsets
    assert list(zip(subset.sentences1, subset.sentences2, subset.gold, strict=True)) == PAIRS
    columns = dict(zip(("sentence1", "sentence2", "score"), zip(*PAIRS, strict=True), strict=True))
    for file in write_forms(tmp_path / "forms", columns):
        if file.suffix:
            assert read(file) == (task,)
    lines = [f"{a}\t{b}\t {score:+}" for a, b, score in PAIRS]
    assert read(write_lines(tmp_path / "a.tsv", [" Sentence1\tSENTENCE2\tScore ", *lines])) == (
        task,
    )
    commas = [f'"{a}";"{b}";{score:+}'.replace(".", ",") for a, b, score in PAIRS]
    assert read(write_lines(tmp_path / "b.csv", ["sentence1;sentence2;score", *commas])) == (task,)
    # The version is of the content alone.
    (moved,) = read_own(OwnSource("other", str(tmp_path / "pairs.tsv")))
    (changed,) = read(write_pairs(tmp_path / "b.tsv", [*PAIRS[:2], ("red", "blue", -2.5)]))
    assert task.version == moved.version != changed.version


def test_labeled_sentences_in_one_file_are_scored_by_folds(tmp_path: Path) -> None:
    (task,) = read(write_labeled(tmp_path / "all.tsv", "text label", CLASSES))
    assert isinstance(task, LabeledTask)
    assert (task.split, task.dev, task.test) == ("dev", None, None)
    assert task.rows.labels == (0, 1) * 12
    assert task.offers == (("accuracy", "dev"), ("macro_f1", "dev"))
    lines = ["text,label,query,Query,pos,pos", *(f"{a},{b},,,," for a, b in CLASSES)]
    assert read(write_lines(tmp_path / "a.csv", lines)) == (
        task,
    )  # what is not read has no faults


def test_a_column_of_splits_and_a_folder_of_them_are_the_same(tmp_path: Path) -> None:
    splits = {"train": CLASSES[:10], "dev": CLASSES[10:16], "test": CLASSES[16:]}
    for split, rows in splits.items():
        write_labeled(tmp_path / "folder" / f"{split}.tsv", "text label", rows)
    spelled = {"train": " TRAIN", "dev": "Validation", "test": "test "}
    dealt = [(*row, spelled[split]) for split, part in splits.items() for row in part]
    (task,) = read(write_labeled(tmp_path / "all.tsv", "Text LABEL Split", dealt))
    assert (task,) == read(tmp_path / "folder")
    assert isinstance(task, LabeledTask)
    assert [len(part) for part in task.parts] == [10, 6, 8]
    assert task.split == "test"
    names = [":".join(offer) for offer in task.offers]
    assert names == ["accuracy:dev", "macro_f1:dev", "accuracy:test", "macro_f1:test"]
    # Without rows to learn from each split has folds of its own.
    (tmp_path / "folder/train.tsv").unlink()
    for split in ("dev", "test"):
        write_labeled(tmp_path / f"folder/{split}.tsv", "text label", CLASSES)
    dev, test = read(tmp_path / "folder")
    assert (dev.split, test.split) == ("dev", "test")
    assert isinstance(dev, LabeledTask) and len(dev.offers) == 2


@pytest.mark.parametrize("header", [True, False])
def test_retrieval_in_the_layout_of_beir(tmp_path: Path, header: bool) -> None:
    documents = {"b": "second", "a": "first", "B": "third"}
    qrels = {"dev": {"q1": {"a": 2, "b": 1}}, "test": {"q2": {"b": 0}}, "train": {}}
    queries = {"q1": "one?", "q2": "two?", "q3": "nobody judged", "q4": " "}
    write_beir(tmp_path, documents, queries, qrels, header=header)
    with (tmp_path / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "c", "title": "Heading", "text": "body", "metadata": {}}\n')
    dev, test = read(tmp_path)
    assert isinstance(dev, RetrievalTask) and isinstance(test, RetrievalTask)
    assert dev.document_ids == ("c", "b", "a", "B")
    assert dev.documents == ("Heading body", "second", "first", "third")
    assert (dev.queries, dev.relevance) == (("one?",), ({"a": 2, "b": 1},))
    assert (test.split, test.queries, test.relevance) == ("test", ("two?",), ({"b": 0},))
    assert dev.version != test.version


SCORED = "sentence1\tsentence2\tscore\n"
DOCUMENT = '{"_id": "a", "text": "x"}\n'


@pytest.mark.parametrize(
    ("name", "content", "sentences"),
    [
        ("dev.txt", "a line\n", ["the columns fit no kind of task: ", "sentence1"]),
        ("dev.tsv", "a\tb\n1\t2\n", ["the columns fit no kind of task: a, b"]),
        ("dev.tsv", f"{SCORED}x\ty\tz\n", ["line 2: score = z", "finite"]),
        ("dev.tsv", f"{SCORED}x\ty\t1,5\nx\ty\t1.5\n", ["line 2: score = 1,5", "a decimal comma"]),
        ("dev.tsv", f"{SCORED}x\ty\t1,5\nx\ty\t1,000,5\n", ["line 3: score = 1,000,5", "comma"]),
        ("dev.tsv", f"{SCORED}x\ty\t1\nx\t \t2\n", ["line 3: sentence2"]),
        ("dev.tsv", f"{SCORED}x\ty\t1\nx\tz\t1\n", ["two different scores"]),
        ("dev.tsv", "text\tlabel\nx\t1\ny\t2\n", ["each class must have 12 rows", "'1' in 1"]),
        ("dev.csv", "text,label,text\na,b,1\n", ["dev.csv: text: two columns", "'text' and 't"]),
        ("dev.jsonl", '{"text": "a \\ud800", "label": "b"}\n', ["dev.jsonl", "surrogate"]),
        ("dev.tsv", "text\tlabel\tsplit\nx\t1\tbest\ny\t2\ttrain\n", ["line 2", "'best'"]),
        ("dev.tsv", f"{SCORED[:-1]}\tsplit\nx\ty\t1\ttrain\n", ["dev rows, test"]),
        (
            "dev.tsv",
            "text\tlabel\tsplit\nx\t1\ttrain\ny\t2\ttrain\nz\t3\tdev\n",
            ["'3'", "no training row"],
        ),
        ("corpus.jsonl", DOCUMENT * 2, ["corpus.jsonl line 2", "twice"]),
        ("corpus.jsonl", '{"_id": "a", "text": " "}', ["corpus.jsonl: text: must not be blank"]),
        ("queries.jsonl", '{"_id": "q1", "text": " "}', ["dev.tsv line 2: q1: is blank in"]),
        ("queries.jsonl", '{"_id": 3.5, "text": "x"}', ["`_id`"]),
        (
            "corpus.jsonl",
            f'{DOCUMENT}{{"_id": "b"}}',
            ["line 2: the line has no key `text`; its keys are _id."],
        ),
        ("corpus.jsonl", f'{DOCUMENT}["b", "y"]', ["corpus.jsonl line 2", "a JSON object"]),
        ("qrels/dev.tsv", "q1\ta\t1\nq1\ta\thigh", ["dev.tsv line 2", "whole number"]),
        ("qrels/dev.tsv", "q1\ta\t1.5\nq1\tb\t1", ["dev.tsv line 1", "whole number"]),
        ("qrels/dev.tsv", "q1\ta\t1\nq1\ta\t0", ["dev.tsv line 2", "earlier line"]),
        ("qrels/dev.tsv", "q9\ta\t1", ["q9", "not a query"]),
        ("qrels/dev.tsv", "q1\ta\t1\nq1\tb\t1", ["line 2: b: is not a document", "corpus.j"]),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore", ["no judgments"]),
        ("qrels/dev.tsv", None, ["must hold dev.tsv, test.tsv or both"]),
    ],
)
def test_faults_are_named_by_their_place(
    name: str, content: str | None, sentences: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    write_beir(folder, {"a": "x"}, {"q1": "y"}, {"dev": {"q1": {"a": 1}}})
    if content is None:
        (folder / name).unlink()
    else:
        write(folder / name, content)
    with pytest.raises(DataError) as caught:
        read(folder / name if name.startswith("dev.") else folder)
    assert all(sentence in str(caught.value) for sentence in sentences), caught.value


TITLED = ['{"_id": "1", "text": "x"}', '{"_id": "2", "title": "7", "metadata": {}}']


@pytest.mark.parametrize(
    ("corpus", "name", "qrels"),
    [
        (
            ['{"_id": 1, "text": "x"}', '{"_id": 2, "text": "7"}', ""],
            "dev.tsv",
            ["3 1 2", "3 2 0", ""],
        ),
        (
            TITLED,
            "dev.tsv",
            ["query\t0\tdoc\tgrade", "3\t0\t1\t2", "3\tQ0\t2\t0"],
        ),
        (
            ['{"_id": "1", "title": null, "text": "x"}', '{"_id": "2", "title": "", "text": "7"}'],
            "dev.tsv",
            ["3\t1\t2\r", "3\t2\t0\r", "\r"],
        ),
        (
            ['{"_id": "1", "text": "x"}', '{"_id": "2", "text": "7", "title": null}'],
            "validation.tsv",
            ["", "query-id\tcorpus-id\tscore", '"3"\t"1"\t2', "3\t2\t0"],
        ),
        (TITLED, "val.tsv", ["query-id\tcorpus-id\tscore", "3\t1\t2.0", "3\t2\t0.0"]),
        (TITLED, "DEV.tsv", ["3\tQ0\t1\t2.000", "3 0 2 +0."]),
    ],
)
def test_the_same_folder_as_others_write_it(
    tmp_path: Path, corpus: list[str], name: str, qrels: list[str]
) -> None:
    """Numbers as ids, TREC's columns, blanks between them, blank lines, grades as fractions."""
    plain = write_beir(
        tmp_path / "a", {"1": "x", "2": "7"}, {"3": "y"}, {"dev": {"3": {"1": 2, "2": 0}}}
    )
    folder = write_beir(tmp_path / "b", {}, {"3": "y"}, {})
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "qrels" / name, qrels)
    assert read(folder) == read(plain)


def test_documents_that_are_queries_or_empty_are_told(tmp_path: Path) -> None:
    documents = {"a": "x", "b": "y", "c": " ", "d": ""}
    queries = {**documents, "c": "z", "d": "z", "q": "w"}
    judged = {"a": {"b": 1}, "b": {"b": 1}, "q": {"c": 1}}
    (task,) = read(write_beir(tmp_path, documents, queries, {"dev": judged}))
    assert isinstance(task, RetrievalTask)
    assert (task.document_ids, task.documents) == (("b", "a", "d", "c"), ("y", "x"))
    assert task.left_out == ("a", "b", None)
    entry = check_own(f"mine={tmp_path}")
    assert entry.status == "ok" and entry.expected == "dev 3 queries, 4 documents"
    assert "2 documents without text" in entry.problem
    assert "2 rankings" in entry.problem and "(1 of them are judged relevant" in entry.problem


SPLITS = {"train": [("x", "y", 1), ("p", "q", 2)], "validation": [("y ", "x", 1), ("u", "v", 2)]}
TEST = [("v", "u", 3), ("c", "d", 1), ("d", "c", 2), ("a", "b", 0)]


@pytest.mark.parametrize(
    "names",
    [
        ["validation-00000-of-00001", "test-00000-of-00001"],
        ["data/validation-00000-of-00002", "data/validation-00001-of-00002", "data/Test"],
        ["Development", "testing-00000-of-00002-0a1b2c", "testing-00001-of-00002-3d4e5f"],
        ["VAL", "TEST"],
    ],
)
def test_a_split_is_known_by_any_of_its_names(tmp_path: Path, names: list[str]) -> None:
    """As the hub, MTEB or a person names its files; the parts of a split are one split."""
    plain: dict[str, Sequence[tuple[str, str, float]]] = {
        "dev": [*PAIRS, ("on", "off", 0.0)],
        "test": TEST,
    }
    for split, rows in plain.items():
        write_pairs(tmp_path / "plain" / f"{split}.tsv", rows)
    for split, rows in plain.items():
        own = [name for name in names if ("test" in name.casefold()) == (split == "test")]
        step = len(rows) // len(own)
        for number, name in enumerate(own):
            part = rows[number * step : (number + 1) * step]
            write_pairs(tmp_path / "theirs" / f"{name}.tsv", part)
    assert read(tmp_path / "theirs") == read(tmp_path / "plain")


@pytest.mark.parametrize("single", [True, False])
def test_pairs_that_are_in_two_splits_or_twice_in_one_are_told(
    tmp_path: Path, single: bool
) -> None:
    splits = {**SPLITS, "test": TEST}
    for split, rows in splits.items():
        write_pairs(tmp_path / "folder" / f"{split}.tsv", rows)
    lines = ["sentence1,sentence2,score,split"]
    lines += [f"{a},{b},{n},{split}" for split, rows in splits.items() for a, b, n in rows]
    write_lines(tmp_path / "all.csv", lines)
    path = tmp_path / ("all.csv" if single else "folder")
    assert [(task.split, task.num_rows) for task in read(path)] == [("dev", 2), ("test", 4)]
    assert read(path) == read(tmp_path / "folder")
    swapped = "(a pair with its two sentences swapped counts as the same)"
    assert check_own(f"mine={path}").problem.split("; ") == [
        f"1 pairs occur in dev and test {swapped}",
        f"1 pairs occur in train and dev {swapped}",
        f"1 pairs occur twice in test {swapped}",
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no dev and no test file"),
        ({"dev.tsv": PAIRS, "dev.csv": PAIRS}, "one file for dev"),
        ({"dev-00001-of-00002.tsv": PAIRS}, "each part of that file once, but has dev-00001"),
        ({"dev.tsv": PAIRS, "Validation.tsv": PAIRS}, "Validation.tsv and dev.tsv"),
        (None, "no such file"),
    ],
)
def test_a_folder_without_a_yardstick(
    tmp_path: Path, files: dict[str, Any] | None, said: str
) -> None:
    for name, rows in (files or {}).items():
        write_pairs(tmp_path / name, rows)
    with pytest.raises(DataError, match=said):
        read(tmp_path / "nowhere" if files is None else tmp_path)


def test_the_rows_to_learn_from_beside_pairs_are_left_alone(tmp_path: Path) -> None:
    write_pairs(tmp_path / "dev.tsv", PAIRS)
    alone = read(tmp_path)
    write_lines(tmp_path / "train.csv", ["anchor,positive", "a,b"])
    assert read(tmp_path) == alone
    # Labeled sentences are learned from, so that theirs must be of their kind.
    (tmp_path / "dev.tsv").unlink()
    write_labeled(tmp_path / "test.tsv", "text label", CLASSES)
    with pytest.raises(
        DataError, match=r"train\.csv: the columns fit no kind of task: anchor, positive\. Give"
    ):
        read(tmp_path)
    (tmp_path / "train.csv").unlink()
    write_pairs(tmp_path / "train.tsv", PAIRS)
    with pytest.raises(DataError, match="both kinds occur"):
        read(tmp_path)


def test_dates_and_numbers_of_json_are_the_texts_that_they_are(tmp_path: Path) -> None:
    # As texts 2024-01-01 and 2024-01-01 00:00:00 are two; as times they are one.
    days = ["2024-01-01", "2024-01-01 00:00:00"]
    for before, classes in (("2024-02-", (0, 1)), ("text ", days)):
        rows = [(f"{before}{n + 1:02}", classes[n % 2]) for n in range(24)]
        texts = [(text, str(label)) for text, label in rows]
        (named,) = read(write_labeled(tmp_path / "all.tsv", "text label", texts))
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        assert read(write_lines(tmp_path / "all.jsonl", lines)) == (named,)
        assert isinstance(named, LabeledTask)
        assert named.rows.first[0] == f"{before}01" and named.rows.labels == (0, 1) * 12
