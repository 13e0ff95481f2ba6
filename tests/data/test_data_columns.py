"""Columns under names of the user's own, and rows with a blank sentence."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from disk_samples import write

from tune_sentcl.config import DataConfig, Fingerprints, Rows, parse_config, trial_id
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.errors import ConfigError, DataError
from tune_sentcl.space import load_space

TWO = {"anchor": "question", "positive": "answer"}


def load(kind: Rows, source: Path | str, **options: Any) -> Corpus:
    data = {"source": str(source), **options}
    config = parse_config({"method": {"name": "mnr"}, "data": data}, "test").data
    return load_rows(kind, config, None)


def table(**columns: Sequence[object]) -> Mapping[str, Sequence[object]]:
    return columns


KINDS: list[tuple[Rows, dict[str, str], Mapping[str, Sequence[object]]]] = [
    (
        "labeled_pairs",
        {"premise": "p", "hypothesis": "h", "label": "gold"},
        table(p=["a", "b"], h=["c", "d"], gold=["neutral", "entailment"]),
    ),
    ("sentences", {"text": "body"}, table(body=["1999", "2000"])),
    ("positive_pairs", {"sentence1": "q", "sentence2": "d"}, table(q=["1", "2"], d=["3", "4"])),
    (
        "graded_pairs",
        {"sentence1": "q", "sentence2": "d", "score": "how much"},
        table(q=["a", "b"], d=["c", "d"], **{"how much": [1.0, 2.5]}),
    ),
    (
        "triplets",
        {**TWO, "negative": "wrong", "negative_2": "worse"},
        table(question=["1", "2"], answer=["c", "d"], wrong=["e", ""], worse=["f", "g"]),
    ),
]


@pytest.mark.parametrize(("kind", "columns", "rows"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_columns_of_any_name_are_the_same_rows(
    kind: Rows, columns: dict[str, str], rows: Mapping[str, Sequence[object]], tmp_path: Path
) -> None:
    mine = pa.table({"id": [1, 2], **rows})
    roles = {name: role for role, name in columns.items()}
    pq.write_table(mine.rename_columns(["id", *(roles[n] for n in rows)]), tmp_path / "r.parquet")
    expected = load(kind, tmp_path / "r.parquet")
    # A column whose name is the role of another one is none.
    mine = mine.append_column(next(iter(columns)), pa.array([0, 0]))
    pq.write_table(mine, tmp_path / "a.parquet")
    write(tmp_path / "a.csv", mine.to_pandas().to_csv(index=False))
    write(tmp_path / "a.jsonl", mine.to_pandas().to_json(orient="records", lines=True))
    datasets.Dataset(mine).save_to_disk(str(tmp_path / "saved"))
    for name in ("a.parquet", "a.csv", "a.jsonl", "saved"):
        found = load(kind, tmp_path / name, columns=columns)
        assert found.table.equals(expected.table), name
        assert found.fingerprint == expected.fingerprint


def test_the_names_of_a_labels_numbers_go_with_its_column(tmp_path: Path) -> None:
    names = datasets.ClassLabel(names=["contradiction", "entailment", "neutral"])
    rows = {"premise": ["a"], "hypothesis": ["b"], "gold": [1]}
    text = datasets.Value("string")
    features = datasets.Features(premise=text, hypothesis=text, gold=names)
    saved = datasets.Dataset.from_dict(rows, features)
    saved.save_to_disk(str(tmp_path / "saved"))
    saved.to_parquet(str(tmp_path / "a.parquet"))
    for name in ("saved", "a.parquet"):
        found = load("labeled_pairs", tmp_path / name, columns={"label": "gold"})
        assert found.table.to_pylist() == [{"premise": "a", "hypothesis": "b", "label": 0}]


@pytest.mark.parametrize(
    "notes",
    [
        "null",
        "{",
        '{"info": {"features": null}}',
        '{"info": {"features": {"label": [{"names": ["b", "c"]}]}}}',
        '{"info": {"features": {"label": {"names": [["b"], 1]}}}}',
        '{"info": {"features": {"label": {"names": "bc"}}}}',
    ],
)
def test_notes_of_another_shape_hold_no_names(notes: str, tmp_path: Path) -> None:
    rows = pa.table({"premise": ["a"], "hypothesis": ["b"], "label": [1]})
    pq.write_table(rows.replace_schema_metadata({"huggingface": notes}), tmp_path / "a.parquet")
    assert load("labeled_pairs", tmp_path / "a.parquet").table.to_pylist() == rows.to_pylist()


def test_a_mapping_is_one_text_and_no_part_of_an_id() -> None:
    spellings: list[Any] = [
        dict(reversed(TWO.items())),
        "positive=answer, anchor=question",
        "anchor=question,positive=answer",
    ]
    prints = Fingerprints("data", "checkpoint")
    method = {"method": {"name": "mnr"}}
    for columns in spellings:
        data = {"columns": columns, "blanks": "drop"}
        config = parse_config({**method, "data": data}, "test")
        assert config.data.columns == "anchor=question,positive=answer"
        assert trial_id(config, prints) == trial_id(parse_config(method, "test"), prints)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ancor": "a"}, "of roles, and ancor is not a role: the roles are anchor, positive, "),
        ({"negative_0": "a"}, "negative_0 is not a role"),
        ({"anchor": "a", "positive": "a"}, "and a has two roles"),
        ({"anchor": 3}, "names of columns"),
        ({"anchor": "a,b"}, "no comma in a name"),
        ("anchor", "names of columns"),
        (3, "must be text"),
    ],
)
def test_what_is_no_mapping_is_refused(columns: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.columns = .*{message}"):
        parse_config({"method": {"name": "mnr"}, "data": {"columns": columns}}, "test")


def test_a_mapping_must_fit_its_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "question,reply\na,b\n")
    said = "data.columns: there is no column answer; the columns are question, reply"
    with pytest.raises(DataError, match=re.escape(said)):
        load("triplets", path, columns=TWO)
    for source in ("toy", "toy + nli"):
        said = f"data.columns: .* is only for own files and data sets, and {re.escape(source)} "
        with pytest.raises(DataError, match=said):
            load("triplets", source, columns=TWO)
    # Beside a file of one's own a named source keeps its columns.
    write(path, "question,answer\na,b\n")
    mixed = load("triplets", f"toy + {path}", columns=TWO)
    assert mixed.table.slice(len(mixed) - 1).to_pylist()[0]["anchor"] == "a"


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl", "saved"])
def test_missing_columns_are_named_with_those_there(name: str, tmp_path: Path) -> None:
    mine = pa.table({"question": ["a"], "answer": ["b"]})
    pq.write_table(mine, tmp_path / "a.parquet")
    write(tmp_path / "a.csv", "question,answer\na,b\n")
    write(tmp_path / "a.jsonl", '{"question": "a", "answer": "b"}\n')
    datasets.Dataset(mine).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(DataError) as caught:
        load("triplets", tmp_path / name)
    said = "the columns are question, answer; triplets need anchor and positive; or "
    assert said in str(caught.value)
    assert 'data.columns = { anchor = "YOUR COLUMN", positive = ' in str(caught.value)


def test_pairs_of_other_names_are_led_to_two_roles(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "question,answer\na,b\n")
    move = 'data.columns = { sentence1 = "YOUR COLUMN", sentence2 = "YOUR COLUMN" }'
    with pytest.raises(DataError, match=re.escape(move)):
        load("positive_pairs", path)


def test_a_space_holds_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    text = (
        '[fixed]\ndata.columns = { anchor = "question" }\n'
        '[[block]]\nfixed.method.name = "mnr"\n[[block]]\n'
        'fixed.method.name = "triplet"\ngrid.data.columns = [{ positive = "answer" }]\n'
    )
    write(path, text)
    found = [config.data.columns for config in load_space(path).configurations]
    assert found == ["anchor=question", "positive=answer"]
    space = load_space(path, {"data.columns": TWO})
    assert {config.data.columns for config in space.configurations} == {
        "anchor=question,positive=answer"
    }
    assert space.base["data.columns"] == TWO


# Blank sentences


PAIRS = 'anchor,positive\n"a\n\nb",c\n"",d\n\ne," "\nf,g\n,\n'


def test_all_blank_cells_are_named_by_their_lines(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("triplets", write(tmp_path / "a.csv", PAIRS))
    first, second = (str(fault) for fault in caught.value.faults)
    assert "a.csv lines 5, 9: anchor: a sentence must not be blank, and 2 are. " in first
    assert "a.csv lines 7, 9: positive: " in second and "data.blanks=drop" in second
    many = "anchor\tpositive\n" + "a\tb\n \tc\n" * 1200
    with pytest.raises(DataError, match=r"lines 3, 5, 7, 9, 11 and 1,195 more: .* 1,200 are"):
        load("triplets", write(tmp_path / "a.tsv", many))
    lines = '{"anchor": "a", "positive": "b"}\n \n{"anchor": "a", "positive": null}\n'
    with pytest.raises(DataError, match=r"a\.jsonl line 3: positive = None"):
        load("triplets", write(tmp_path / "a.jsonl", lines))


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
    whole = load(kind, write(tmp_path / "a.csv", f"{header}\n{good}\n{good}\n"))
    path = write(tmp_path / "b.csv", f"{header}\n{blank}\n{good}\n{blank}\n{good}\n")
    # The limit counts what is left.
    for options in ({}, {"limit": 2}):
        found = load(kind, path, blanks="drop", **options)
        assert (found.fingerprint, found.dropped) == (whole.fingerprint, 2)
    assert load(kind, tmp_path / "a.csv", blanks="drop").fingerprint == whole.fingerprint
    table = pyarrow.csv.read_csv(path)  # Arrow cannot take rows of string views by their numbers
    views = [f.with_type(pa.string_view()) if f.type == pa.string() else f for f in table.schema]
    pq.write_table(table.cast(pa.schema(views)), tmp_path / "c.parquet")
    assert load(kind, tmp_path / "c.parquet", blanks="drop").fingerprint == whole.fingerprint
    both = load(kind, f"{path} + {path}", blanks="drop")
    assert (len(both), both.dropped) == (4, 4)


def test_rows_behind_dropped_ones_keep_their_lines(tmp_path: Path) -> None:
    text = "sentence1,sentence2,score\na,,1\na,b,2\na,b,high\n"
    with pytest.raises(DataError, match=r"a\.csv line 4: score = high"):
        load("graded_pairs", write(tmp_path / "a.csv", text), blanks="drop")


def test_blank_cells_among_rows_chosen_by_score_keep_their_lines(tmp_path: Path) -> None:
    text = "sentence1,sentence2,score\na,b,1\na,,1\na,b,5\na,,5\n"
    with pytest.raises(DataError, match=r"a\.csv line 5: positive = ''"):
        load("triplets", write(tmp_path / "a.csv", text))


def test_a_limit_on_parquet_reads_past_blank_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["", "a", " ", "b"]}), tmp_path / "a.parquet")
    config = DataConfig(source=str(tmp_path / "a.parquet"), limit=2, blanks="drop")
    assert load_rows("sentences", config, None).texts("text") == ["a", "b"]
