import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import REAL_ROOT, ROWS, load_nli, needs_real_data, write_nli
from disk_samples import write

from tune_sentcl.data.rows.kinds import LABELS
from tune_sentcl.errors import DataError

NUMBERED = [(premise, hypothesis, LABELS.index(label)) for premise, hypothesis, label in ROWS]


def as_dataset(names: list[str]) -> datasets.Dataset:
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
        }
    )
    columns = ("premise", "hypothesis", "label")
    rows = [dict(zip(columns, row, strict=True)) for row in ROWS]
    return datasets.Dataset.from_list(rows, features=features)


def sources(folder: Path) -> list[str]:
    """The same rows in every form that can be read."""
    quoted = [[f'"{text.replace(chr(34), chr(34) * 2)}"' for text in row] for row in ROWS]
    table = pa.table(
        dict(zip(("premise", "hypothesis", "label"), zip(*ROWS, strict=True), strict=True))
    )
    table.to_pandas().to_json(folder / "a.jsonl", orient="records", lines=True)
    pq.write_table(
        table.set_column(0, "premise", table["premise"].dictionary_encode()), folder / "d.parquet"
    )
    write(
        folder / "a.csv",
        "\n".join(["label,hypothesis,premise", *(",".join(row[::-1]) for row in quoted)]),
    )
    write(
        folder / "a.tsv",
        "\r\n".join(["premise\thypothesis\tlabel", *("\t".join(row) for row in quoted)]) + "\r\n",
    )
    as_dataset(list(LABELS)).save_to_disk(str(folder / "saved"))
    as_dataset(list(LABELS[::-1])).save_to_disk(str(folder / "renumbered"))
    shuffled = as_dataset(list(LABELS)).select([3, 2, 1, 0]).select([3, 2, 1, 0])
    datasets.DatasetDict({"train": shuffled}).save_to_disk(str(folder / "dict"))
    as_dataset(list(LABELS[::-1])).to_parquet(str(folder / "named.parquet"))
    write_nli(folder / "a.parquet", list(ROWS))
    write_nli(folder / "numbers.parquet", list(NUMBERED))
    return [str(path) for path in sorted(folder.iterdir())]


def test_every_form_gives_the_same_corpus(tmp_path: Path) -> None:
    corpora = [load_nli(source, None, None) for source in sources(tmp_path)]
    assert len(corpora) == 10
    for corpus in corpora:
        assert corpus.texts("premise") == [row[0] for row in ROWS], corpus.source
        assert corpus.texts("hypothesis") == [row[1] for row in ROWS], corpus.source
        assert corpus.numbers("label").tolist() == [row[2] for row in NUMBERED], corpus.source
        assert corpus.table.schema.types == [pa.string(), pa.string(), pa.int8()]
        assert corpus.fingerprint == corpora[0].fingerprint
        assert "/" not in corpus.source
    assert corpora[0].numbers("label").dtype == np.int64
    assert len(corpora[0]) == 4


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_nli(tmp_path / "a.parquet", list(ROWS))
    write_nli(tmp_path / "nli/snli_dev.parquet", list(ROWS))
    assert len(load_nli("~/a.parquet", None, None)) == 4
    assert len(load_nli("snli-dev", None, Path("~"))) == 4


def test_unlabelled_rows_are_dropped_before_the_limit(tmp_path: Path) -> None:
    rows = [("no", "label", -1), *NUMBERED[:1], ("", "blank but unlabelled", -1), *NUMBERED[1:]]
    names = [("no", "label", "-"), *ROWS[:1], ("", "blank", "-"), *ROWS[1:]]
    whole = load_nli(str(write_nli(tmp_path / "a.parquet", list(rows))), None, None)
    assert whole.numbers("label").tolist() == [0, 1, 2, 1]
    named = load_nli(str(write_nli(tmp_path / "b.parquet", list(names))), None, None)
    assert named.fingerprint == whole.fingerprint
    first = load_nli(str(tmp_path / "a.parquet"), 2, None)
    assert first.numbers("label").tolist() == [0, 1]
    # A slice of a table and a table of as many rows are the same content.
    short = write_nli(tmp_path / "c.parquet", list(NUMBERED[:2]))
    assert first.fingerprint == load_nli(str(short), None, None).fingerprint
    assert first.fingerprint != whole.fingerprint


@pytest.mark.parametrize(
    "kind", [pa.uint8(), pa.int8(), pa.int64(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())]
)
@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view()])
def test_other_widths_are_the_same(tmp_path: Path, kind: pa.DataType, text: pa.DataType) -> None:
    base = load_nli(str(write_nli(tmp_path / "a.parquet", list(NUMBERED))), None, None)
    table = pq.read_table(tmp_path / "a.parquet")
    labels = table["label"]
    labels = labels.dictionary_encode() if pa.types.is_dictionary(kind) else labels.cast(kind)
    table = table.set_column(2, "label", labels)
    table = table.set_column(1, "hypothesis", table["hypothesis"].cast(text))
    pq.write_table(table, tmp_path / "b.parquet")
    assert load_nli(str(tmp_path / "b.parquet"), None, None).fingerprint == base.fingerprint


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "b", 3), r"row 2: label = 3: a label must be"),
        (("a", "b", -2), r"row 2: label = -2"),
        (("a", "b", None), r"row 2: label = None"),
        (("", "b", 1), r"row 2: premise = '': .*blank"),
        (("a", " \t", 1), r"row 2: hypothesis = ' \\t'"),
        (("a", None, 1), r"row 2: hypothesis = None"),
    ],
)
def test_refuses_bad_rows(
    tmp_path: Path, row: tuple[object, object, object], message: str
) -> None:
    path = write_nli(tmp_path / "a.parquet", [("a", "b", 0), row, ("a", "b", 2)])
    with pytest.raises(DataError, match=rf"a\.parquet {message}"):
        load_nli(str(path), 1, None)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "b", "entailment"), ("a", "b", "Neutral")], r"row 2: label = 'Neutral'"),
        ([("a", "b", "3")], r"row 1: label = '3'"),
        ([("a", "b", 0.0)], r"label: .* holds double.*numbers or names"),
        ([("a", "b", True)], r"label: .* holds bool"),
        ([(1, "b", 0)], r"premise: .*must hold text, and holds int64"),
        ([("a", None, 0)], r"row 1: hypothesis = None"),
        ([("a", "b", -1)], r"no row has a label.*Choose another file"),
    ],
)
def test_refuses_bad_columns(
    tmp_path: Path, rows: list[tuple[object, object, object]], message: str
) -> None:
    path = write_nli(tmp_path / "a.parquet", rows)
    with pytest.raises(DataError, match=message):
        load_nli(str(path), None, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"not parquet", r"a\.parquet: the file cannot be read as parquet"),
        ("a.parquet", b"", r"cannot be read as parquet"),
        (
            "a.csv",
            b"premise,hypothesis,label\na,b,0\na,b\n",
            "a.csv line 3: 2 cells: a row must have 3",
        ),
        ("a.csv", b"premise,hypothesis,label\na,\xff,0\n", "a.csv line 2: byte 0xff .*utf-8 text"),
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"premise,hypothesis,label\n", r"a\.csv: there are no rows"),
        (
            "a.csv",
            b"premise,hypothesis\na,b\n",
            "columns are premise, hypothesis; labeled pairs need premise, hypothesis and",
        ),
        ("a.csv", b"premise,hypothesis,label\na,b,\nc,d,1\n", "a.csv line 2: label = None"),
        ("a.jsonl", b'{"premise": "a",\n', "a.jsonl line 1: must be a JSON object"),
        # Arrow ends the process at this one.
        ("a.jsonl", b'\nnull\n{"premise": "a"}\n', "line 2: must be a JSON object"),
        ("a.jsonl", b'{"premise": "a"}\nnull\n', "line 2: must be a JSON object"),
        ("a.jsonl", b'{"premise": "a", "hypothesis": "\xff", "label": 0}\n', "line 1: byte 0xff"),
        ("a.jsonl", b'{"premise": "a", "hypothesis": 1, "label": 0}\n', "line 1: hypothesis = 1"),
        (
            "a.jsonl",
            b'{"hypothesis": "b", "label": 0}\n',
            "columns are hypothesis, label; labeled",
        ),
        (
            "a.jsonl",
            b'{"hypothesis": "b", "label": 0, "premise": null}\n',
            "line 1: premise = None",
        ),
        (
            "a.txt",
            b"premise",
            r"a\.txt: the columns are text; labeled pairs need premise",
        ),
        (
            "a.doc",
            b"premise",
            r"must end in \.parquet, \.csv, \.tsv, \.jsonl, \.txt.*correct its name",
        ),
    ],
)
def test_refuses_broken_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=message):
        load_nli(str(path), None, None)


def test_refuses_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"was not saved by `datasets`.*save_to_disk"):
        load_nli(str(tmp_path), None, None)
    with pytest.raises(DataError, match="the file does not exist"):
        load_nli(str(tmp_path / "none.csv"), None, None)
    test = datasets.DatasetDict({"test": as_dataset(list(LABELS))})
    test.save_to_disk(str(tmp_path / "dict"))
    with pytest.raises(DataError, match="no split `train`; the splits are test"):
        load_nli(str(tmp_path / "dict"), None, None)
    names = [*LABELS, "unsure"]
    as_dataset(names).save_to_disk(str(tmp_path / "four"))
    assert len(load_nli(str(tmp_path / "four"), None, None)) == len(ROWS)


def test_hub_out_of_reach() -> None:
    # In a child, for the switch is read when the hub's library is first imported.
    code = (
        "from tune_sentcl.config import DataConfig; "
        "from tune_sentcl.data.rows.load import load_rows; "
        "load_rows('sentences', DataConfig(source='nobody/nothing'), None)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={"HF_HUB_OFFLINE": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 1
    assert "DataError: data.source: nobody/nothing: no such file or folder" in child.stderr


@needs_real_data
def test_real_corpora() -> None:
    first = load_nli("snli-first2000", None, REAL_ROOT)
    assert len(first) == 2000
    assert first.texts("premise")[0] == "A person on a horse jumps over a broken down airplane."
    assert first.numbers("label")[:3].tolist() == [1, 2, 0]
    assert len(load_nli("snli-dev", None, REAL_ROOT)) == 9842
    partial = load_nli("snli-partial", None, REAL_ROOT)
    assert np.bincount(partial.numbers("label")).tolist() == [36315, 30835, 25463]
