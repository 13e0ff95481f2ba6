"""The rows of `tune_sentcl/data/toy.parquet`; `python -m toy_generator.shipped` writes it."""

import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from toy_generator.domain import write_domain
from toy_generator.toy_sets import toy_nli, toy_sts, toy_transfer, toy_vocabulary
from tune_sentcl.data import toy

SHIPPED = Path(toy.__file__).with_suffix(".parquet")
_COLUMNS = {name: pa.string() for name in ("set", "split", "subset", "first", "second")}
_SCHEMA = pa.schema({**_COLUMNS, "value": pa.float64()})

_Row = tuple[str, str, str | None, str, str | None, float | None]


def shipped_table() -> pa.Table:
    rows = chain(_nli(), _sts(), _transfer(), _others())
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, r, strict=True)) for r in rows], _SCHEMA)


def _nli() -> Iterator[_Row]:
    for row in toy_nli():
        yield ("NLI", "train", None, *row)


def _sts() -> Iterator[_Row]:
    for task in toy_sts():
        for s in task.subsets:
            for pair in zip(s.sentences1, s.sentences2, s.gold, strict=True):
                yield (task.name, task.split, s.name, *pair)


def _transfer() -> Iterator[_Row]:
    for task in toy_transfer():
        for split in ("train", "dev", "test"):
            if part := getattr(task, split):
                second = part.second or [None] * len(part)
                for row in zip(part.first, second, part.labels, strict=True):
                    yield (task.name, split, None, *row)


def _others() -> Iterator[_Row]:
    for piece in toy_vocabulary():
        yield ("vocabulary", "", None, piece, None, None)
    with tempfile.TemporaryDirectory() as name:
        write_domain(Path(name))
        for file in sorted(path for path in Path(name).rglob("*") if path.is_file()):
            text = file.read_bytes().decode()
            yield ("domain", "", None, file.relative_to(name).as_posix(), text, None)


if __name__ == "__main__":
    pq.write_table(shipped_table(), SHIPPED, compression="zstd", compression_level=19)
