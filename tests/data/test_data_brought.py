"""Files as people bring them: separators, encodings, headers, lists, scores and repeated texts."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import load
from disk_samples import write

from tune_sentcl.config import DataConfig, parse_config
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.errors import DataError
from tune_sentcl.seeding import stream
from tune_sentcl.train.loop import _epoch, count_steps, rows_left_out

PLAIN = "anchor,positive\nwo ist Straße,dort\nhow,so\n"
ROWS = [("wo ist Straße", "dort"), ("how", "so")]
NEGATIVE = [(*row, "no") for row in ROWS]


def texts(corpus: Corpus) -> list[tuple[str, ...]]:
    return list(zip(*(corpus.texts(name) for name in corpus.text_columns()), strict=True))


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", PLAIN.replace(",", ";"), ROWS),
        ("a.csv", PLAIN.replace(",", "\t"), ROWS),
        ("a.tsv", PLAIN.replace(",", "|"), ROWS),
        ("a.csv", '"anchor";"positive"\n"wo ist Straße";"dort"\n"how";"so"\n', ROWS),
        ("a.csv", "anchor;positive\na, b;c, d\n", [("a, b", "c, d")]),
        ("a.csv", "anchor;positive;notes, if any\nhow;so;x\n", ROWS[1:]),
        ("a.csv", '"anchor";"positive";"x,y"\n"how";"so";"z"\n', ROWS[1:]),
        ("a.csv", "anchor,positive,label (a;b;c;d)\nhow,so,2\n", ROWS[1:]),
        ("a.tsv", "anchor\tpositive\tlabel (0=a, 1=b, 2=c, 3)\nhow\tso\t1\n", ROWS[1:]),
        ("a.csv", PLAIN.replace("\n", "\r"), ROWS),
        ("a.csv", PLAIN.encode("utf-16"), ROWS),
        ("a.tsv", b"\xfe\xff" + PLAIN.replace(",", "\t").encode("utf-16-be"), ROWS),
        ("a.csv", PLAIN.replace("\n", "\r\n").encode("utf-8-sig"), ROWS),
        ("a.jsonl", '{"anchor": "how", "positive": "so"}\n'.encode("utf-16"), ROWS[1:]),
        ("a.csv", PLAIN.replace("anchor,positive", "Anchor, Positive"), ROWS),
        ("a.csv", "ANCHOR ,positive,Negative_1\nhow,so,no\n", NEGATIVE[1:]),
        ("a.csv", "sep=|\r\nanchor|positive\r\n,|,\r\n", [(",", ",")]),
        ("a.csv", f'"sep=;"\n{PLAIN}'.replace(",", ";").encode("utf-8-sig"), ROWS),
        ("a.csv", "Anchor,anchor,positive\nx,how,so\n", ROWS[1:]),
        ("a.jsonl", '{" Query": "how", "Pos": ["so"], "neg": "no"}\n', NEGATIVE[1:]),
        ("a.csv", "Sent0,sent1,HARD_NEG\nhow,so,no\n", NEGATIVE[1:]),
        ("a.csv", "anchor,positive,Text,TEXT\nhow,so,x,y\n", ROWS[1:]),
        ("a.jsonl", '{"anchor": "how", "positive": "so", "sentence1": 1}\n', ROWS[1:]),
    ],
)
def test_separators_encodings_and_headers(
    name: str, content: str | bytes, rows: list[tuple[str, ...]], tmp_path: Path
) -> None:
    assert texts(load("triplets", str(write(tmp_path / name, content)))) == rows


def test_capitals_in_the_columns_of_other_forms(tmp_path: Path) -> None:
    table = pa.table({"Anchor ": ["how"], "POSITIVE": ["so"]})
    pq.write_table(table, tmp_path / "a.parquet")
    datasets.Dataset(table).save_to_disk(str(tmp_path / "saved"))
    for source in ("a.parquet", "saved"):
        assert texts(load("triplets", str(tmp_path / source))) == ROWS[1:]
    write(tmp_path / "a.csv", "Question,ANSWER\nhow,so\n")
    columns = "anchor=question,positive=Answer"
    config = DataConfig(source=str(tmp_path / "a.csv"), columns=columns)
    assert texts(load_rows("triplets", config, None)) == ROWS[1:]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Anchor,ANCHOR,positive\na,b,c\n", "anchor: two columns have this role: 'ANCHOR' and"),
        (PLAIN.encode("cp1252"), "line 2: byte 0xdf .* the file must be utf-8 text"),
        (PLAIN.encode("utf-32"), "the file is UTF-32 text"),
        (PLAIN.encode("utf-16-le"), "UTF-16 must begin with a byte order mark"),
        (PLAIN.encode("utf-16")[:-1], "line 3: .* must be utf-16 text"),
        ("sep=;\nanchor;positive\na;b\na;b;c\n", "line 4: 3 cells: a row must have 2 cells"),
    ],
)
def test_what_is_wrong_is_named(content: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"a\.csv.* {said}"):
        load("triplets", str(write(tmp_path / "a.csv", content)))


QUERY = {"query": "q", "pos": ["a", "b"], "neg": ["x", "y"]}


@pytest.mark.parametrize(
    ("lines", "rows", "drawn"),
    [
        (
            [QUERY, {"query": "r", "pos": ["c"], "neg": ["z"]}],
            [("q", "a", "x", "y"), ("q", "b", "x", "y"), ("r", "c", "z", "")],
            2,
        ),
        ([{**QUERY, "neg": []}] * 2, [("q", "a"), ("q", "b")] * 2, 2),
        ([{"query": "q", "pos": "a"}, {"query": "q", "pos": ["b"]}], [("q", "a"), ("q", "b")], 2),
        (
            [{"anchor": "q", "positive": ["a", "b", "c"], "negative": ["x"]}],
            [("q", "a", "x"), ("q", "b", "x"), ("q", "c", "x")],
            1,
        ),
    ],
)
def test_lists_of_positives(
    lines: list[dict[str, Any]], rows: list[tuple[str, ...]], drawn: int, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "a.parquet") if drawn < 2 else None
    drawing = load("triplets", str(path))
    each = load_rows("triplets", DataConfig(source=str(path), positives="rows"), None)
    assert texts(drawing) == texts(each) == rows
    assert (drawing.epoch_sizes(), each.epoch_sizes()) == ((drawn,), (len(rows),))
    assert (drawing.fingerprint == each.fingerprint) == (drawn == len(rows))
    for other in tmp_path.glob("*.parquet"):
        assert load("triplets", str(other)).fingerprint == drawing.fingerprint
    # One source beside another one without lists.
    both = load("triplets", f"{path} + {write(tmp_path / 'b.csv', PLAIN)}")
    assert both.epoch_sizes() == (drawn, 2)
    corpus, numbers = both.epoch_rows(np.random.default_rng(0))
    assert [texts(both)[row] for row in numbers] == texts(corpus)
    assert (sum(corpus.parts or (len(corpus),)), len(both)) == (drawn + 2, len(rows) + 2)


def test_each_epoch_draws_a_positive_of_each_row_from_its_own_stream(tmp_path: Path) -> None:
    lines = [{"query": f"q{n}", "pos": [f"{n} {k}" for k in range(3)]} for n in range(50)]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    corpus = load("triplets", str(path))
    config = brought(path, "shuffled", False, epochs=3)
    epochs = [np.concatenate(_epoch(corpus, config, epoch)) for epoch in (0, 1, 2, 0)]
    assert all(sorted(rows // 3) == list(range(50)) for rows in epochs)
    assert np.array_equal(epochs[0], epochs[3])
    assert not np.array_equal(np.sort(epochs[0]), np.sort(epochs[1]))
    own = corpus.epoch_rows(stream(0, "positives", 0))[1]
    assert np.array_equal(np.sort(epochs[0]), own) and set(own % 3) == {0, 1, 2}
    assert count_steps(corpus, config) == 3 * 4


def test_an_empty_list_of_positives_is_refused_with_its_line_or_dropped(tmp_path: Path) -> None:
    lines = [QUERY, {"query": "r", "pos": [], "neg": ["x"]}, {**QUERY, "pos": ["a", " "]}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    with pytest.raises(DataError, match=r"a\.jsonl lines 2, 3: positive: .* and 2 are"):
        load("triplets", str(path))
    kept = load_rows("triplets", DataConfig(source=str(path), blanks="drop"), None)
    assert [row[:2] for row in texts(kept)] == [("q", "a"), ("q", "b"), ("q", "a")]
    limited = load_rows("triplets", DataConfig(source=str(path), blanks="drop", limit=1), None)
    assert texts(limited) == texts(kept)[:2]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            ["0.95", "0.05", "0.9"],
            "= 4 or above; the scores are 0.05 to 0.95",
        ),
        (["1", "3"], "the scores are 1 to 3"),
        (["-1", "1"], "the scores are -1 to 1"),
        (["0"], "the scores are 0 to 0"),
    ],
)
@pytest.mark.parametrize("kind", ["triplets", "positive_pairs"])
def test_scores_below_the_least_say_their_range(
    kind: Any, scores: list[str], said: str, tmp_path: Path
) -> None:
    rows = "".join(f"a,b,{score}\n" for score in scores)
    path = write(tmp_path / "a.csv", f"sentence1,sentence2,score\n{rows}")
    with pytest.raises(DataError, match=rf"{said}\. Set data\.min_score"):
        load(kind, str(path))
    assert len(load(kind, str(path), min_score=-1)) == len(scores)


def brought(path: Path, order: str, drop_last: bool, epochs: int = 1) -> Any:
    data = {"source": str(path), "order": order, "drop_last": drop_last}
    optimizer = {"batch_size": 16, "epochs": epochs}
    values = {"method": {"name": "mnr"}, "data": data, "optimizer": optimizer}
    return parse_config(values, "test")


@pytest.mark.parametrize(
    ("answers", "steps", "left"),
    [
        ([n % 4 for n in range(1000)], 250, 0),  # all are short
        ([n % 16 for n in range(1000)], 62, 8),
        ([0] * 500 + list(range(1, 500)), 485, 15),  # most are short, and rows are not wasted
        (list(range(100)), 6, 4),
    ],
)
def test_distinct_batches_leave_out_less_than_a_batch(
    answers: list[int], steps: int, left: int, tmp_path: Path
) -> None:
    rows = "".join(f"question {n},answer {answer}\n" for n, answer in enumerate(answers))
    path = write(tmp_path / "a.csv", f"anchor,positive\n{rows}")
    corpus, config = load("triplets", str(path)), brought(path, "distinct", True)
    dealt = _epoch(corpus, config, 0)
    assert (len(dealt), rows_left_out(corpus, config)) == (steps, left)
    assert all(max(Counter(answers[row] for row in batch).values()) == 1 for batch in dealt)
    assert rows_left_out(corpus, brought(path, "distinct", False)) == 0
    assert rows_left_out(corpus, brought(path, "shuffled", True)) == len(corpus) % 16
