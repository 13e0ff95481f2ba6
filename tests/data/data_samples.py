"""Small files in the layouts that the readers expect, and the place of the real ones."""

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from disk_samples import write

from tune_sentcl.config import DataConfig, Rows
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows

REAL_ROOT = Path(__file__).parents[3] / "shared" / "data"

needs_real_data = pytest.mark.skipif(
    not REAL_ROOT.is_dir(), reason="no real data beside the checkout"
)

ROWS = [
    ("A man eats.", "A person eats.", "entailment"),
    ("A man eats.", "A man is “tall”, they say.", "neutral"),
    ("A man eats.", 'Nobody says "eat".', "contradiction"),
    ("NULL", "N/A", "neutral"),
]


def write_nli(path: Path, rows: list[tuple[object, object, object]]) -> Path:
    premises, hypotheses, labels = zip(*rows, strict=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"premise": list(premises), "hypothesis": list(hypotheses), "label": list(labels)}
    )
    pq.write_table(table, path)
    return path


def write_rows(folder: Path, columns: Mapping[str, Sequence[object]]) -> list[str]:
    """The same columns in every form with names for them."""
    folder.mkdir(exist_ok=True)
    rows = list(zip(*columns.values(), strict=True))
    pq.write_table(pa.table(columns), folder / "a.parquet")
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        with (folder / f"a.{suffix}").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerows([list(columns), *rows])
    lines = (json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
    write(folder / "a.jsonl", "".join(f"{line}\n" for line in lines))
    datasets.Dataset.from_dict(dict(columns)).save_to_disk(str(folder / "saved"))
    return [str(path) for path in sorted(folder.iterdir())]


def load(
    kind: Rows,
    source: str,
    limit: int | None = None,
    root: Path | None = None,
    min_score: float = 4.0,
) -> Corpus:
    return load_rows(kind, DataConfig(source=source, limit=limit, min_score=min_score), root)


load_nli = partial(load, "labeled_pairs")
load_sentences = partial(load, "sentences")
load_positive_pairs = partial(load, "positive_pairs")
load_graded_pairs = partial(load, "graded_pairs")
load_triplets = partial(load, "triplets")
