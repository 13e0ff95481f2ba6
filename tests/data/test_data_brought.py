"""Files as people bring them: lists of positives, and texts that repeat."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from data_samples import Texts, load_triplets, rows_of, write_table
from disk_samples import write

from tune_sentcl.config import parse_config
from tune_sentcl.errors import DataError
from tune_sentcl.seeding import stream
from tune_sentcl.train.loop import _epoch, count_steps

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
    lines: list[dict[str, Any]], rows: Texts, drawn: int, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    if drawn < 2:
        write_table(tmp_path / "a.parquet", pa.Table.from_pylist(lines))
    drawing = load_triplets(path)
    each = load_triplets(path, positives="rows")
    assert rows_of(drawing) == rows_of(each) == rows
    assert (drawing.epoch_sizes(), each.epoch_sizes()) == ((drawn,), (len(rows),))
    assert (drawing.fingerprint == each.fingerprint) == (drawn == len(rows))
    for other in tmp_path.glob("*.parquet"):
        assert load_triplets(other).fingerprint == drawing.fingerprint
    # One source beside another one without lists.
    plain = write(tmp_path / "b.csv", "anchor,positive\na,b\nhow,so\n")
    both = load_triplets(f"{path} + {plain}")
    assert both.epoch_sizes() == (drawn, 2)
    corpus, numbers = both.epoch_rows(np.random.default_rng(0))
    assert [rows_of(both)[row] for row in numbers] == rows_of(corpus)
    assert (sum(corpus.parts or (len(corpus),)), len(both)) == (drawn + 2, len(rows) + 2)


def test_each_epoch_draws_a_positive_of_each_row_from_its_own_stream(tmp_path: Path) -> None:
    lines = [{"query": f"q{n}", "pos": [f"{n} {k}" for k in range(3)]} for n in range(50)]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    corpus = load_triplets(path)
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
    with pytest.raises(DataError, match=r"a\.jsonl lines 2, 3: positive: .* but 2 are"):
        load_triplets(path)
    kept = load_triplets(path, blanks="drop")
    assert [row[:2] for row in rows_of(kept)] == [("q", "a"), ("q", "b"), ("q", "a")]
    limited = load_triplets(path, 1, blanks="drop")
    assert rows_of(limited) == rows_of(kept)[:2]


def brought(path: Path, order: str, drop_last: bool, epochs: int = 1) -> Any:
    data = {"source": str(path), "order": order, "drop_last": drop_last}
    optimizer = {"batch_size": 16, "epochs": epochs}
    values = {"method": {"name": "mnr"}, "data": data, "optimizer": optimizer}
    return parse_config(values, "test")
