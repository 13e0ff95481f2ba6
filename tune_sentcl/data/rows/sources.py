"""Resolve a `data.source`: a name under the data root, a file, a folder, or a hub data set."""

import difflib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tune_sentcl.config import DataConfig, Rows, columns_of
from tune_sentcl.data.root import existing_root
from tune_sentcl.data.rows.files import read_dataset, read_table, with_lists_spread
from tune_sentcl.data.rows.kinds import NUMBERS, columns_read
from tune_sentcl.data.rows.labeled_pairs import numbered_rows, text_column
from tune_sentcl.data.tasks.sts_data import read_task
from tune_sentcl.data.text_files import SUFFIXES, Origin, blank_sentences
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
"""The files of each named source under the data root; the first that exists is read."""

WHOLE = {"snli": 549_367, "mnli": 392_702, "nli-simcse": 275_601, "wiki": 1_000_000}
"""Rows of the sets that the papers trained on, without rows that lack a label."""

JOINED = {"nli": ("snli", "mnli"), "nli-partial": ("snli-partial", "mnli-partial")}
"""Names for the concatenated labeled pairs of several sources."""

WHOLE_NLI = "nli/snli_train.parquet + nli/mnli_train.parquet"
NLI_ENTAILED = 314_315
"""Entailment rows of the whole SNLI and MultiNLI train sets: 183,416 and 130,899."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def is_named(source: str) -> bool:
    """Whether a source is a name that this module defines."""
    return source in ("toy", "sts-b", *JOINED, *SOURCES)


def open_source(kind: Rows, config: DataConfig, root: Path | None) -> tuple[pa.Table, Origin]:
    """Read the rows of one source; only their columns are checked.

    Args:
        kind: The kind of rows to make.
        config: Its source is `toy`, `sts-b` (its train split), a name in `SOURCES` or `JOINED`, a
            file, a folder saved by `datasets`, or a hub data set as `owner/name` (its `train`
            split). If there is a limit, a partial set may stand for one in `WHOLE`.
        root: The data root; read only for `sts-b` and the names in `SOURCES` and `JOINED`.

    Returns:
        The rows, possibly more than the limit, and their origin.

    Raises:
        DataError: The source does not exist, cannot be read, is not the whole set, or lacks the
            columns for such rows.
    """
    source, limit = config.source, config.limit
    if source == "toy":
        table, where = (toy_graded if kind == "graded_pairs" else toy_nli)(), Origin("toy")
    elif source == "sts-b":
        table = _benchmark(existing_root(root, "data.source = sts-b"))
        where = Origin("STSBenchmark/sts-train.csv")
    elif source in JOINED:
        found = [_open_named(part, root, source, limit) for part in JOINED[source]]
        # Normalized separately: the files may number their labels differently.
        table = pa.concat_tables(numbered_rows(*one) for one in found)
        where = Origin(" + ".join(str(origin) for _, origin in found))
    elif source in SOURCES:
        table, where = _open_named(source, root, source, limit)
    else:
        table, where = _open_own(config)
    where = where if where.columns else replace(where, columns=tuple(table.column_names))
    names = columns_read(kind, table.column_names, where)
    table, where = with_lists_spread(table, where)
    if config.positives == "rows" and "row" in table.column_names:
        table = table.drop_columns("row")
    return _filled(table, names, where) if config.blanks == "drop" else (table, where)


def _open_own(config: DataConfig) -> tuple[pa.Table, Origin]:
    path, columns = Path(config.source).expanduser(), columns_of(config.columns)
    if path.is_dir():
        return read_dataset(str(path), columns)
    if path.exists() or path.suffix in SUFFIXES:
        return read_table(path, None if config.blanks == "drop" else config.limit, columns)
    # Other names are not looked up on the hub, where a mistyped name would cost a timeout.
    if _HUB_NAME.fullmatch(config.source):
        return read_dataset(config.source, columns)
    names = ["toy", "sts-b", *JOINED, *SOURCES]
    near = difflib.get_close_matches(config.source, names, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    rule = (
        f"must be a known source ({', '.join(names)}), a file, a folder or the name of "
        "a hub data set (owner/name)"
    )
    raise DataError(Fault("data.source", "", config.source, rule, f"{hint}Give one of them."))


def _filled(table: pa.Table, names: tuple[str, ...], where: Origin) -> tuple[pa.Table, Origin]:
    """Drop rows with a blank sentence; `label` and `score` are not sentences."""
    blank = np.zeros(len(table), dtype=bool)
    for name in names:
        if name not in NUMBERS:
            blank |= np.asarray(blank_sentences(text_column(table, name, where)))
    kept = np.flatnonzero(~blank)
    return table.take(pa.array(kept)), replace(where.take(kept), dropped=int(blank.sum()))


def shown_source(name: str) -> str:
    """A name that is the same on every machine: an absolute path's last component."""
    return Path(name).name if Path(name).is_absolute() else name


def _open_named(
    source: str, root: Path | None, asked: str, limit: int | None
) -> tuple[pa.Table, Origin]:
    folder = existing_root(root, f"data.source = {asked}")
    for name in SOURCES[source]:
        if (folder / name).exists():
            table, where = read_table(folder / name, limit)
            if limit is None and source in WHOLE:
                _require_whole(table, source, where, asked)
            return table, replace(where, name=name)
    rule = f"the data root must hold {' or '.join(SOURCES[source])}"
    move = "Copy the file there, or give another root: `--data DIR` or TUNE_SENTCL_DATA."
    raise DataError(Fault(str(folder), "data.source", asked, rule, move))


def require_enough(rows: pa.Table, source: str, limit: int | None) -> pa.Table:
    """Return the rows, if a paper's set has as many as requested; other sources may have fewer.

    Raises:
        DataError: A paper's set has fewer rows than `limit`.
    """
    papers = all(part in WHOLE for part in JOINED.get(source, (source,)))
    if papers and limit is not None and len(rows) < limit:
        rule = f"only {len(rows):,} fitting rows of {source} are there"
        move = f"Take no more (--set data.limit={len(rows)}), or copy the whole file there."
        raise DataError(Fault("data.limit", "", str(limit), rule, move))
    return rows


def _require_whole(table: pa.Table, source: str, where: Origin, asked: str) -> None:
    """Refuse a partial set under the name of the whole set, because results name the set."""
    count, file = len(table), Path(str(where))
    if "label" in table.column_names:
        count = int((numbered_rows(table, where)["label"].to_numpy() >= 0).sum())
    if count != WHOLE[source]:
        rule = f"{source} stands for the whole set of {WHOLE[source]:,} rows"
        move = "Copy the whole file there, or set how many rows are enough: --set data.limit=N."
        name = _own_name(asked, file)
        if name is not None:
            move = f"{move[:-1]}, or name the partial set: --set data.source={name}."
        raise DataError(Fault(str(file), "data.source", f"{count:,} rows", rule, move))


def _own_name(asked: str, file: Path) -> str | None:
    """The name of the partial set in `file`; None if it has no name."""
    named = {n: files for n, files in SOURCES.items() if len(files) == 1 and n not in WHOLE}
    single = {n for n, files in named.items() if file.match(files[0])}
    if asked not in JOINED:
        return next(iter(single), str(file))
    return next((n for n, parts in JOINED.items() if single & set(parts)), None)


def _benchmark(root: Path) -> pa.Table:
    (pairs,) = read_task(root, "STS-B", "train").subsets
    columns = {"sentence1": pairs.sentences1, "sentence2": pairs.sentences2, "score": pairs.gold}
    return pa.table({name: list(values) for name, values in columns.items()})
