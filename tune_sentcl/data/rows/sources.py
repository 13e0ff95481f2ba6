"""What a `data.source` means: a name under the data root, a file, a folder, or a hub name."""

import difflib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tune_sentcl.config import Rows
from tune_sentcl.data.root import existing_root
from tune_sentcl.data.rows.files import (
    SUFFIXES,
    Reading,
    columns_read,
    read_hub,
    read_saved,
    read_table,
)
from tune_sentcl.data.rows.labeled_pairs import numbered_rows, text_column
from tune_sentcl.data.tasks.sts_data import read_task
from tune_sentcl.data.text_files import Origin, blank_sentences, file_columns
from tune_sentcl.data.toy.toy_sets import toy_graded, toy_nli
from tune_sentcl.errors import DataError, Fault

SOURCES: dict[str, tuple[str, ...]] = {
    "snli": ("nli/snli_train.parquet", "nli/snli_train_partial.parquet"),
    "snli-partial": ("nli/snli_train_partial.parquet",),
    "snli-first2000": ("nli/snli_train_first2000.parquet",),
    "snli-dev": ("nli/snli_dev.parquet",),
    "mnli": ("nli/mnli_train.parquet", "nli/mnli_train_partial.parquet"),
    "mnli-partial": ("nli/mnli_train_partial.parquet",),
    "nli-simcse": ("nli/nli_for_simcse.csv",),
    "wiki": ("wiki/wiki1m_for_simcse.txt", "wiki/enwiki_2015_sentences_1m.parquet"),
}
"""The files under the data root that a name stands for; the first that exists is read."""

WHOLE = {"snli": 549_367, "mnli": 392_702, "nli-simcse": 275_601, "wiki": 1_000_000}
"""Rows of the sets that the papers trained on, those without a label left out."""

JOINED = {"nli": ("snli", "mnli"), "nli-partial": ("snli-partial", "mnli-partial")}
"""Names that stand for the labeled pairs of several others, one after the other."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def is_named(source: str) -> bool:
    """Whether a source is one of those that have a name here."""
    return source in ("toy", "sts-b", *JOINED, *SOURCES)


def open_source(
    kind: Rows, source: str, root: Path | None, limit: int | None, reading: Reading
) -> tuple[pa.Table, Origin]:
    """Read the rows that a source names, not yet checked but for their columns.

    Args:
        kind: What is to be made of them.
        source: `toy`, `sts-b` (its train split), a name in `SOURCES` or `JOINED`, a file, a folder
            saved by `datasets`, or a hub data set as `owner/name` (its `train` split).
        root: The data root; only `sts-b` and the names in `SOURCES` and `JOINED` read it.
        limit: How many rows are wanted, for which a part of a set in `WHOLE` may do; None: all.
        reading: Which columns have which role, and what becomes of blank sentences.

    Returns:
        The rows, of which there may be more than are wanted, and what was read.

    Raises:
        DataError: There is no such source, it cannot be read, it is not the whole set, or it
            lacks the columns for such rows.
    """
    if source == "toy":
        table, where = (toy_graded if kind == "graded_pairs" else toy_nli)(), Origin("toy")
    elif source == "sts-b":
        table = _benchmark(existing_root(root, "data.source = sts-b"))
        where = Origin("STSBenchmark/sts-train.csv")
    elif source in JOINED:
        found = [_open_known(part, root, source, limit) for part in JOINED[source]]
        # Each by itself: the files may number their labels differently.
        table = pa.concat_tables(numbered_rows(*one) for one in found)
        where = Origin(" + ".join(str(origin) for _, origin in found))
    elif source in SOURCES:
        table, where = _open_known(source, root, source, limit)
    else:
        table, where = _open_own(source, limit, reading)
    where = where if where.columns else replace(where, columns=tuple(table.column_names))
    names = columns_read(kind, table, where)
    return _filled(table, names, where) if reading.blanks == "drop" else (table, where)


def _open_own(source: str, limit: int | None, reading: Reading) -> tuple[pa.Table, Origin]:
    path = Path(source).expanduser()
    if path.is_dir():
        table, where = read_saved(path, reading)
    elif path.exists() or path.suffix in SUFFIXES:
        table = read_table(path, limit, reading)
        where = Origin(str(path), path, file_columns(path, table))
    # Only `owner/name` is asked for on the hub: a mistyped name would wait for it in vain.
    elif _HUB_NAME.fullmatch(source):
        table, where = read_hub(source, reading)
    else:
        raise _unknown(source)
    return (reading.renamed(table, where) if reading.columns else table), where


def _filled(table: pa.Table, names: tuple[str, ...], where: Origin) -> tuple[pa.Table, Origin]:
    """The rows without a blank sentence in some columns; `label` and `score` are no sentences."""
    blank = np.zeros(len(table), dtype=bool)
    for name in names:
        if name not in ("label", "score"):
            blank |= np.asarray(blank_sentences(text_column(table, name, where)))
    kept = np.flatnonzero(~blank)
    return table.take(pa.array(kept)), replace(where, rows=kept, dropped=int(blank.sum()))


def shown_source(name: str) -> str:
    """A name that reads the same on every machine: of an absolute path, the last part."""
    return Path(name).name if Path(name).is_absolute() else name


def _unknown(source: str) -> DataError:
    known = ["toy", "sts-b", *JOINED, *SOURCES]
    near = difflib.get_close_matches(source, known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return DataError(
        Fault(
            where="data.source",
            key="",
            value=source,
            rule=f"neither a known source ({', '.join(known)}), a file, a folder nor the name of "
            "a hub data set (owner/name)",
            next_move=f"{hint}Give one of them.",
        )
    )


def _open_known(
    source: str, root: Path | None, asked: str, limit: int | None
) -> tuple[pa.Table, Origin]:
    folder = existing_root(root, f"data.source = {asked}")
    for name in SOURCES[source]:
        if (folder / name).exists():
            table, where = read_table(folder / name, limit), Origin(name, folder / name)
            if limit is None and source in WHOLE:
                _require_whole(table, source, folder / name, asked)
            return table, where
    raise DataError(
        Fault(
            where=str(folder),
            key="data.source",
            value=asked,
            rule=f"the data root must hold {' or '.join(SOURCES[source])}",
            next_move="Copy the file there, or give another root: `--data DIR` or "
            "TUNE_SENTCL_DATA.",
        )
    )


def require_enough(rows: pa.Table, source: str, limit: int | None) -> pa.Table:
    """See that a paper's set has as many rows as are wanted; other sources have what there is.

    Args:
        rows: What was found, and can be trained on.
        source: As asked for.
        limit: How many are wanted; None: all.

    Returns:
        The rows.

    Raises:
        DataError: There are fewer.
    """
    papers = all(part in WHOLE for part in JOINED.get(source, (source,)))
    if papers and limit is not None and len(rows) < limit:
        rule = f"only {len(rows):,} fitting rows of {source} are there"
        move = f"Take no more (--set data.limit={len(rows)}), or copy the whole file there."
        raise DataError(Fault("data.limit", "", str(limit), rule, move))
    return rows


def _require_whole(table: pa.Table, source: str, file: Path, asked: str) -> None:
    """Keep a part of a set from standing for the set, under whose name results are compared."""
    count = len(table)
    if "label" in table.column_names:
        count = int((numbered_rows(table, Origin(str(file), file))["label"].to_numpy() >= 0).sum())
    if count != WHOLE[source]:
        rule = f"{source} stands for the whole set of {WHOLE[source]:,} rows"
        move = "Copy the whole file there, or say how many rows are enough: --set data.limit=N."
        name = _own_name(asked, file)
        if name is not None:
            move = f"{move[:-1]}, or name what is there: --set data.source={name}."
        raise DataError(Fault(str(file), "data.source", f"{count:,} rows", rule, move))


def _own_name(asked: str, file: Path) -> str | None:
    """The name that stands for what is there, and for nothing else; None if there is none."""
    named = {n: files for n, files in SOURCES.items() if len(files) == 1 and n not in WHOLE}
    single = {n for n, files in named.items() if file.match(files[0])}
    if asked not in JOINED:
        return next(iter(single), str(file))
    return next((n for n, parts in JOINED.items() if single & set(parts)), None)


def _benchmark(root: Path) -> pa.Table:
    (pairs,) = read_task(root, "STS-B", "train").subsets
    columns = {"sentence1": pairs.sentences1, "sentence2": pairs.sentences2, "score": pairs.gold}
    return pa.table({name: list(values) for name, values in columns.items()})
