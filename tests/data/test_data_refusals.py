"""What cannot be rows of a kind is refused with its place, or left out where asked."""

import re
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.csv
import pytest
from data_samples import (
    Columns,
    load,
    load_graded_pairs,
    load_nli,
    load_positive_pairs,
    load_sentences,
    load_triplets,
    write_forms,
    write_nli,
    write_table,
)
from disk_samples import write

from tune_sentcl.config import Rows
from tune_sentcl.errors import DataError

NLI = "premise,hypothesis,label\n"
PLAIN = "anchor,positive\nwo ist Straße,dort\n"


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("labeled_pairs", "a.parquet", b"not parquet", "the file cannot be read as parquet"),
        ("labeled_pairs", "a.csv", f"{NLI}a,b,0\na,b\n", "line 3: 2 cells: a row must have 3"),
        ("labeled_pairs", "a.csv", b"premise,x\na,\xff\n", "line 2: byte 0xff .*utf-8 text"),
        ("labeled_pairs", "a.csv", "", "the file is empty"),
        ("labeled_pairs", "a.csv", NLI, ": there are no rows"),
        (
            "labeled_pairs",
            "a.csv",
            "premise,hypothesis\na,b\n",
            "columns are premise, hypothesis; labeled pairs need premise, hypothesis and",
        ),
        ("labeled_pairs", "a.jsonl", '{"premise": "a",\n', "line 1: must be a JSON object"),
        # Arrow ends the process at this one.
        ("labeled_pairs", "a.jsonl", '\nnull\n{"premise": "a"}\n', "line 2: must be a JSON obj"),
        (
            "labeled_pairs",
            "a.jsonl",
            '{"premise": "a", "hypothesis": 1, "label": 0}\n',
            "line 1: hypothesis = 1",
        ),
        (
            "labeled_pairs",
            "a.doc",
            "premise",
            r"must end in \.parquet, \.csv, \.tsv, \.jsonl, \.txt.*correct its name",
        ),
        ("labeled_pairs", "none/a.csv", None, "the file does not exist"),
        ("sentences", "a.txt", "", ": .*the file is empty"),
        (
            "graded_pairs",
            "a.csv",
            "sentence1,sentence2,score\na,b,5\nc,d,\ne,f,n/k\n",
            "line 3: score",
        ),
        (
            "triplets",
            "a.csv",
            "Anchor,ANCHOR,positive\na,b,c\n",
            "anchor: two columns have this role: 'ANCHOR' and",
        ),
        (
            "triplets",
            "a.jsonl",
            '{"anchor": "a\\ud800", "positive": "b"}\n',
            "line 1: anchor .*surrogate",
        ),
        (
            "triplets",
            "a.jsonl",
            '{"anchor": "a", "positive": "b", "anchor": "c"}\n',
            "line 1: .*twice",
        ),
        ("triplets", "a.csv", PLAIN.encode("cp1252"), "line 2: byte 0xdf .* must be utf-8 text"),
        ("triplets", "a.csv", PLAIN.encode("utf-32"), "the file is UTF-32 text"),
        ("triplets", "a.csv", PLAIN.encode("utf-16-le"), "must begin with a byte order mark"),
        (
            "triplets",
            "a.csv",
            "sep=;\nanchor;positive\na;b\na;b;c\n",
            "line 4: 3 cells: a row must have 2 cells",
        ),
        (
            "triplets",
            "a.tsv",
            "anchor\tpositive\n" + "a\tb\n \tc\n" * 1200,
            "lines 3, 5, 7, 9, 11 and 1,195 more: .* 1,200 are",
        ),
        (
            "triplets",  # of rows that are chosen by score, the lines of the file
            "a.csv",
            "sentence1,sentence2,score\na,b,1\na,,1\na,b,5\na,,5\n",
            "line 5: positive = ''",
        ),
    ],
)
def test_files_are_refused_by_their_lines(
    kind: Rows, name: str, content: str | bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name if content is None else write(tmp_path / name, content)
    with pytest.raises(DataError, match=rf"{re.escape(path.name)}.*{message}"):
        load(kind, path)


PAIR = {"sentence1": ["a", "b"], "sentence2": ["c", "d"]}
TEXT = pa.array([], pa.string())


def labeled(*labels: object) -> Columns:
    return {"premise": ["a"] * len(labels), "hypothesis": ["b"] * len(labels), "label": labels}


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        ("labeled_pairs", labeled("entailment", "Neutral"), r" row 2: label = 'Neutral'"),
        ("labeled_pairs", labeled(0.0), r"label: .* holds double.*numbers or names"),
        ("labeled_pairs", labeled(-1), r"no row has a label.*Choose another file"),
        ("labeled_pairs", {**labeled(0), "premise": [1]}, "premise: .*hold text, but holds int64"),
        (
            "labeled_pairs",
            {"text": ["a"]},
            ": the columns are text; labeled pairs need premise, hypothesis and label. Name the",
        ),
        (
            "positive_pairs",
            {"text": ["a"]},
            ": the columns are text; positive pairs need premise, hypothesis and label; or",
        ),
        (
            "sentences",
            {"body": ["a"]},
            ": the columns are body; sentences need text; or sentence1",
        ),
        ("sentences", {"text": [1]}, "text: the column must hold text, but holds int64"),
        ("sentences", {"text": TEXT}, ": there are no rows"),
        ("positive_pairs", labeled("neutral"), r": no row is labeled entailment\. Choose"),
        ("graded_pairs", {**PAIR, "score": ["5", "four"]}, " row 2: score = four: .* finite num"),
        ("graded_pairs", {**PAIR, "score": [5.0, float("nan")]}, " row 2: score = nan"),
        ("graded_pairs", {**PAIR, "score": [[1], [2]]}, r" row 1: score = \[1\]"),
        (
            "triplets",
            {"anchor": ["a", " "], "positive": ["b", "c"]},
            " row 2: anchor = ' ': a sentence must not be blank",
        ),
        ("triplets", {"anchor": ["a"]}, ": the columns are anchor; triplets need anchor and pos"),
        (
            "triplets",
            {"anchor": ["a"], "positive": ["b"], "negative": ["['c', 'd']"]},
            "negative_1: the column holds lists that are written as text",
        ),
        (
            "triplets",
            labeled("entailment"),
            "no premise has both a row labeled entailment and a row labeled contradiction",
        ),
    ],
)
def test_columns_are_refused_by_their_rows(
    kind: Rows, columns: Columns, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"a\.parquet.*{message}"):
        load(kind, write_table(tmp_path / "a.parquet", columns))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "b", 3), "row 2: label = 3: a label must be"),
        (("", "b", 1), "row 2: premise = '': .*blank"),
        (("a", " \t", 1), r"row 2: hypothesis = ' \\t'"),
    ],
)
def test_a_bad_row_behind_the_limit_is_refused(
    row: tuple[object, object, object], message: str, tmp_path: Path
) -> None:
    path = write_nli(tmp_path / "a.parquet", [("a", "b", 0), row, ("a", "b", 2)])
    with pytest.raises(DataError, match=rf"a\.parquet {message}"):
        load_nli(path, 1)


@pytest.mark.parametrize("name", ["negative_0", "negative_01", "negative_", "negative_1_2"])
def test_a_negative_under_a_name_of_its_own_is_not_dropped(name: str, tmp_path: Path) -> None:
    columns = {"anchor": ["a"], "positive": ["b"], "negative_1": ["c"], name: ["d"]}
    for source in write_forms(tmp_path / "rows", columns):
        with pytest.raises(DataError, match=f": {name}: columns of negatives must be named"):
            load_triplets(source)
        # Pairs do not read the negatives.
        assert len(load_positive_pairs(source)) == 1


def test_a_mapping_of_columns_must_fit_its_source(tmp_path: Path) -> None:
    columns = {"anchor": "question", "positive": "answer"}
    path = write(tmp_path / "a.csv", "question,reply\na,b\n")
    with pytest.raises(DataError, match="no column answer; the columns are question, reply"):
        load_triplets(path, columns=columns)
    for source in ("toy", "toy + nli"):
        rule = rf"data\.columns: .* can only name .*, but {re.escape(source)} is not custom"
        with pytest.raises(DataError, match=rule):
            load_triplets(source, columns=columns)
    # Beside a file of one's own a named source keeps its columns.
    write(path, "question,answer\na,b\n")
    assert load_triplets(f"toy + {path}", columns=columns).texts("anchor")[-1] == "a"


def test_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"was not saved by `datasets`.*save_to_disk"):
        load_nli(tmp_path)
    test = datasets.DatasetDict({"test": datasets.Dataset.from_dict({"text": ["a"]})})
    test.save_to_disk(str(tmp_path / "dict"))
    with pytest.raises(DataError, match="no split `train`; the splits are test"):
        load_sentences(tmp_path / "dict")


def test_the_hub_out_of_reach_is_refused() -> None:
    # In a child, because the switch is read when the hub's library is first imported.
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
    assert "DataError: data.source: nobody/nothing: this is no file or folder" in child.stderr


# Blank sentences


def test_all_blank_cells_are_named_at_once(tmp_path: Path) -> None:
    cells = 'anchor,positive\n"a\n\nb",c\n"",d\n\ne," "\nf,g\n,\n'
    with pytest.raises(DataError) as caught:
        load_triplets(write(tmp_path / "a.csv", cells))
    first, second = (str(fault) for fault in caught.value.faults)
    assert "a.csv lines 5, 9: anchor: a sentence must not be blank, but 2 are. " in first
    assert "a.csv lines 7, 9: positive: " in second and "data.blanks=drop" in second


@pytest.mark.parametrize(
    ("kind", "header", "good", "blank"),
    [
        ("triplets", "anchor,positive", "a,b", "a, "),
        ("labeled_pairs", "premise,hypothesis,label", "a,b,1", ",b,1"),
        ("positive_pairs", "sentence1,sentence2", "a,b", ","),
        ("graded_pairs", "sentence1,sentence2,score", "a,b,3", "a,,4"),
        ("sentences", "text,id", "a,1", " ,2"),
    ],
)
def test_rows_with_a_blank_sentence_are_dropped(
    kind: Rows, header: str, good: str, blank: str, tmp_path: Path
) -> None:
    whole = load(kind, write(tmp_path / "a.csv", f"{header}\n{good}\n{good}\n"), blanks="drop")
    assert whole.dropped == 0
    path = write(tmp_path / "b.csv", f"{header}\n{blank}\n{good}\n{blank}\n{good}\n")
    table = pyarrow.csv.read_csv(path)  # Arrow cannot take rows of string views by their numbers
    views = [f.with_type(pa.string_view()) if f.type == pa.string() else f for f in table.schema]
    write_table(tmp_path / "c.parquet", table.cast(pa.schema(views)))
    # The limit counts what is left.
    for source, limit in ((path, None), (path, 2), (tmp_path / "c.parquet", None)):
        kept = load(kind, source, limit, blanks="drop")
        assert (kept.fingerprint, kept.dropped) == (whole.fingerprint, 2)
    both = load(kind, f"{path} + {path}", blanks="drop")
    assert (len(both), both.dropped) == (4, 4)


def test_rows_behind_dropped_ones_keep_their_lines(tmp_path: Path) -> None:
    text = "sentence1,sentence2,score\na,,1\na,b,2\na,b,high\n"
    with pytest.raises(DataError, match=r"a\.csv line 4: score = high"):
        load_graded_pairs(write(tmp_path / "a.csv", text), blanks="drop")


def test_a_limit_on_parquet_reads_past_blank_rows(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", {"text": ["", "a", " ", "b"]})
    assert load_sentences(path, 2, blanks="drop").texts("text") == ["a", "b"]
