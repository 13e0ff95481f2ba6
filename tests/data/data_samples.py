"""Small files in the layouts that the readers expect, and the place of the real ones."""

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from disk_samples import write

from tune_sentcl.config import Rows, parse_config
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows

REAL_ROOT = Path(__file__).parents[3] / "shared" / "data"

needs_real_data = pytest.mark.skipif(
    not REAL_ROOT.is_dir(), reason="no real data beside the checkout"
)

Columns = Mapping[str, Sequence[object]]
Texts = list[tuple[str, ...]]

ROWS = [
    ("A man eats.", "A person eats.", "entailment"),
    ("A man eats.", "A man is “tall”, they say.", "neutral"),
    ("A man eats.", 'Nobody says "eat".', "contradiction"),
    ("NULL", "N/A", "neutral"),
]


def write_table(path: Path, columns: Columns | pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(dict(columns)), path)
    return path


def write_nli(path: Path, rows: Sequence[tuple[object, object, object]]) -> Path:
    names = ("premise", "hypothesis", "label")
    return write_table(path, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def write_forms(folder: Path, columns: Columns) -> list[Path]:
    """The same columns in every form with names for them."""
    rows = list(zip(*columns.values(), strict=True))
    write_table(folder / "a.parquet", columns)
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        with (folder / f"a.{suffix}").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([list(columns), *rows])
    lines = (json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
    write(folder / "a.jsonl", "".join(f"{line}\n" for line in lines))
    datasets.Dataset.from_dict(dict(columns)).save_to_disk(str(folder / "saved"))
    return sorted(folder.iterdir())


def load(
    kind: Rows,
    source: str | Path,
    limit: int | None = None,
    root: Path | None = None,
    **options: Any,
) -> Corpus:
    data = {"source": str(source), "limit": limit, **options}
    return load_rows(kind, parse_config({"method": {"name": "mnr"}, "data": data}, "t").data, root)


def rows_of(corpus: Corpus) -> Texts:
    return list(zip(*(corpus.texts(name) for name in corpus.text_columns()), strict=True))


load_nli = partial(load, "labeled_pairs")
load_sentences = partial(load, "sentences")
load_positive_pairs = partial(load, "positive_pairs")
load_graded_pairs = partial(load, "graded_pairs")
load_triplets = partial(load, "triplets")
