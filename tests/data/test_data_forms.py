"""Every form of a file, every header, encoding, type and line gives the same rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from data_samples import (
    ROWS,
    Columns,
    Texts,
    load,
    load_nli,
    load_sentences,
    load_triplets,
    rows_of,
    write_forms,
    write_nli,
    write_table,
)
from disk_samples import write

from tune_sentcl.config import Fingerprints, Rows, parse_config, trial_id
from tune_sentcl.data.rows.kinds import LABELS
from tune_sentcl.data.tables import read_table
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.errors import ConfigError, DataError

NUMBERED = [(premise, hypothesis, LABELS.index(label)) for premise, hypothesis, label in ROWS]
SENTENCES = ["A man “eats”.", "", 'She said: "no, never".', "NULL", "2020-01-01", "A man “eats”."]
TWO = {"anchor": "question", "positive": "answer"}

KINDS: list[tuple[Rows, Mapping[str, str], Columns]] = [
    (
        "labeled_pairs",
        {"premise": "p", "hypothesis": "h", "label": "gold"},
        {"p": ["a", "b"], "h": ["c", "d"], "gold": ["neutral", "entailment"]},
    ),
    ("sentences", {"text": "body"}, {"body": SENTENCES}),
    ("positive_pairs", {"sentence1": "q", "sentence2": "d"}, {"q": ["1", "2"], "d": ["3", ""]}),
    (
        "graded_pairs",
        {"sentence1": "q", "sentence2": "d", "score": "how much"},
        {"q": ["a", "b"], "d": ["c", "d"], "how much": [1.0, 2.5]},
    ),
    (
        "triplets",
        {**TWO, "negative": "wrong", "negative_2": "worse"},
        {"question": ["1", "2"], "answer": ["c", "d"], "wrong": ["e", ""], "worse": ["f", "g"]},
    ),
]


@pytest.mark.parametrize(("kind", "names", "columns"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_forms_and_names_of_columns_change_no_row(
    kind: Rows, names: Mapping[str, str], columns: Columns, tmp_path: Path
) -> None:
    roles = {name: role for role, name in names.items()}
    count = len(next(iter(columns.values())))
    plain = {"id": [*range(count)], **{roles[name]: rows for name, rows in columns.items()}}
    corpora = [load(kind, source) for source in write_forms(tmp_path / "plain", plain)]
    # A column whose name is the role of another one is not read.
    other = {"id": [*range(count)], **columns, next(iter(names)): [0] * count}
    for source in write_forms(tmp_path / "other", other):
        corpora.append(load(kind, source, columns=names))
    for corpus in corpora:
        assert corpus.table.equals(corpora[0].table), corpus.source
        assert corpus.fingerprint == corpora[0].fingerprint
        assert "/" not in corpus.source
    first = corpora[0].table.to_pydict()
    if kind != "labeled_pairs":
        assert [*first.values()] == [*columns.values()]


@pytest.mark.parametrize(
    "content", ["".join(f"{s}\n" for s in SENTENCES), "\ufeff" + "\r\n".join(SENTENCES)]
)
def test_lines_of_text_are_sentences(content: str, tmp_path: Path) -> None:
    assert load_sentences(write(tmp_path / "a.txt", content)).texts("text") == SENTENCES


def as_dataset(names: list[str]) -> datasets.Dataset:
    text = datasets.Value("string")
    label = datasets.ClassLabel(names=names)
    features = datasets.Features({"premise": text, "hypothesis": text, "label": label})
    rows = [dict(zip(("premise", "hypothesis", "label"), row, strict=True)) for row in ROWS]
    return datasets.Dataset.from_list(rows, features=features)


def test_labels_are_numbers_names_or_numbers_of_names(tmp_path: Path) -> None:
    expected = load_nli(write_nli(tmp_path / "numbers.parquet", NUMBERED))
    assert expected.numbers("label").tolist() == [row[2] for row in NUMBERED]
    write_nli(tmp_path / "a.parquet", ROWS)
    renumbered = as_dataset([*LABELS[::-1]])
    renumbered.save_to_disk(str(tmp_path / "renumbered"))
    renumbered.to_parquet(str(tmp_path / "named.parquet"))
    as_dataset([*LABELS, "unsure"]).save_to_disk(str(tmp_path / "four"))
    chosen = renumbered.select([3, 2, 1, 0]).select([3, 2, 1, 0])
    datasets.DatasetDict({"train": chosen}).save_to_disk(str(tmp_path / "dict"))
    for path in tmp_path.iterdir():
        corpus = load_nli(path)
        assert corpus.table.schema.types == [pa.string(), pa.string(), pa.int8()]
        assert corpus.table.equals(expected.table), path
    renamed = renumbered.rename_column("label", "gold")
    renamed.to_parquet(str(tmp_path / "renamed.parquet"))
    found = load_nli(tmp_path / "renamed.parquet", columns={"label": "gold"})
    assert found.table.equals(expected.table)


@pytest.mark.parametrize(
    "kind", [pa.uint8(), pa.int8(), pa.int64(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())]
)
@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view(), pa.string()])
def test_types_of_other_widths_change_no_row(
    tmp_path: Path, kind: pa.DataType, text: pa.DataType
) -> None:
    premises, hypotheses, labels = zip(*NUMBERED, strict=True)
    column = pa.array(labels, pa.int32())
    columns = {
        "premise": pa.array(premises).dictionary_encode(),
        "hypothesis": pa.array(hypotheses, text),
        "label": column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind),
    }
    found = load_nli(write_table(tmp_path / "b.parquet", columns))
    expected = load_nli(write_nli(tmp_path / "a.parquet", NUMBERED))
    assert found.fingerprint == expected.fingerprint


PLAIN = "anchor,positive\nwo ist Straße,dort\nhow,so\n"
PAIRS = [("wo ist Straße", "dort"), ("how", "so")]
NEGATIVE = [("how", "so", "no")]


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", PLAIN.replace(",", ";"), PAIRS),
        ("a.tsv", PLAIN.replace(",", "|"), PAIRS),
        ("a.csv", "anchor;positive\na, b;c, d\n", [("a, b", "c, d")]),
        ("a.csv", '"anchor";"positive";"x,y"\n"how";"so";"z"\n', PAIRS[1:]),
        ("a.csv", "anchor,positive,label (a;b;c;d)\nhow,so,2\n", PAIRS[1:]),
        ("a.csv", PLAIN.replace("\n", "\r"), PAIRS),
        ("a.csv", PLAIN.encode("utf-16"), PAIRS),
        ("a.tsv", b"\xfe\xff" + PLAIN.replace(",", "\t").encode("utf-16-be"), PAIRS),
        ("a.jsonl", '{"anchor": "how", "positive": "so"}\n'.encode("utf-16"), PAIRS[1:]),
        ("a.csv", PLAIN.replace("anchor,positive", "Anchor, Positive"), PAIRS),
        ("a.csv", "ANCHOR ,positive,Negative_1\nhow,so,no\n", NEGATIVE),
        ("a.csv", "sep=|\r\nanchor|positive\r\n,|,\r\n", [(",", ",")]),
        ("a.csv", f'"sep=;"\n{PLAIN}'.replace(",", ";").encode("utf-8-sig"), PAIRS),
        ("a.csv", "Anchor,anchor,positive\nx,how,so\n", PAIRS[1:]),
        ("a.jsonl", '{" Query": "how", "Pos": ["so"], "neg": "no"}\n', NEGATIVE),
        # A name that is not read may stand twice.
        ("a.csv", "id,anchor,positive,id\n1,how,so,2\n", PAIRS[1:]),
        ("a.jsonl", '{"anchor": "how", "positive": "so", "sentence1": 1}\n', PAIRS[1:]),
    ],
)
def test_separators_encodings_and_headers(
    name: str, content: str | bytes, rows: Texts, tmp_path: Path
) -> None:
    assert rows_of(load_triplets(write(tmp_path / name, content))) == rows


def test_capitals_in_columns_change_no_row(tmp_path: Path) -> None:
    table = pa.table({"Anchor ": ["how"], "POSITIVE": ["so"]})
    datasets.Dataset(table).save_to_disk(str(tmp_path / "saved"))
    for source in (write_table(tmp_path / "a.parquet", table), tmp_path / "saved"):
        assert rows_of(load_triplets(source)) == PAIRS[1:]
    path = write(tmp_path / "a.csv", "Question,ANSWER\nhow,so\n")
    columns = "anchor=question,positive=Answer"
    assert rows_of(load_triplets(path, columns=columns)) == PAIRS[1:]


def test_a_mapping_of_columns_is_one_text_and_no_part_of_an_id() -> None:
    prints = Fingerprints("data", "checkpoint")
    method = {"method": {"name": "mnr"}}
    plain = trial_id(parse_config(method, "test"), prints)
    for columns in (
        dict(reversed(TWO.items())),
        "positive=answer, anchor=question",
        "anchor=question,positive=answer",
    ):
        data = {"columns": columns, "blanks": "drop"}
        config = parse_config({**method, "data": data}, "test")
        assert config.data.columns == "anchor=question,positive=answer"
        assert trial_id(config, prints) == plain


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ancor": "a"}, "roles, but ancor is not a role; the roles are anchor, positive, "),
        ({"anchor": "a", "positive": "a"}, "but a has two roles"),
        ({"anchor": 3}, "names of columns"),
        ({"anchor": "a,b"}, "must not contain a comma"),
        (3, "must be text"),
    ],
)
def test_what_is_no_mapping_is_refused(columns: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.columns = .*{message}"):
        parse_config({"method": {"name": "mnr"}, "data": {"columns": columns}}, "test")


HEADER = ["sentence1", "sentence2"]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.tsv", 'He said "no"\tx\n"Quote at start\ty\nfoo\tz\nbaz" ok\tq\n', 3),
        ("a.tsv", '"So" he said\tb\n', 2),
        ("a.tsv", 'a\t"b\n', 2),
        ("a.csv", 'x,y\n"Quote at start,a\nfoo,b\nbaz" ok,c\n', 3),
        ("a.csv", '"fine\nlines",y\r\n"a"b,c\r\n', 4),
    ],
)
def test_an_open_quote_is_refused_with_its_line(
    tmp_path: Path, name: str, content: str, line: int
) -> None:
    mark = "\t" if name == "a.tsv" else ","
    path = write(tmp_path / name, mark.join(HEADER) + "\n" + content)
    with pytest.raises(DataError, match=rf'{name} line {line}: .* must end with "'):
        read_table(path)


# Lines


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\n\nb\n\n", ["a", "", "b", ""]),
        ("a\r\n\r\nb\r\n", ["a", "", "b"]),
        ("a\rb\r\r\n", ["a\rb\r"]),
        ("\n", [""]),
        ("\ufeffa\n", ["a"]),
        ("a\u2028b\n", ["a\u2028b"]),
    ],
)
def test_rows(tmp_path: Path, content: str, rows: list[str]) -> None:
    assert read_lines(write(tmp_path / "a", content), "utf-8") == rows


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none", "does not exist"),
        (tmp_path, "this is a folder"),
        (write(tmp_path / "a", ""), "is empty"),
        (write(tmp_path / "file", "x") / "below", r"cannot be read \(.+\)"),
        (
            write(tmp_path / "b", b"good\nalso good\nbad \xe9 row\n"),
            r"b line 3: byte 0xe9 at offset 19: .*utf-8",
        ),
    ):
        with pytest.raises(DataError, match=message):
            read_lines(path, "utf-8")
