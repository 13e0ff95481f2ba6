"""Read the training rows of a source: a name under the data root, a file, a folder, a hub name."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from tune_sentcl.config import DataConfig, Rows, columns_of
from tune_sentcl.data.root import existing_root, published_counts
from tune_sentcl.data.rows.judged import (
    as_scores,
    judging,
    names_no_nli,
    positives,
    refuse_false_negatives,
)
from tune_sentcl.data.rows.kinds import (
    NUMBERS,
    columns_read,
    numbered_rows,
    roles_read,
)
from tune_sentcl.data.split_names import split_named
from tune_sentcl.data.tables import (
    NEGATIVE,
    SUFFIXES,
    UNREAD,
    Origin,
    Read,
    blank_sentences,
    by_role,
    is_plain,
    read_table,
    roles_of,
    text_column,
)
from tune_sentcl.data.tasks.sts_data import read_task
from tune_sentcl.data.toy import toy_graded, toy_nli
from tune_sentcl.errors import DataError, Fault, first_line
from tune_sentcl.plugins import EXTENSIONS
from tune_sentcl.plugins.extensions import Extension

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

_ROWS = {
    path: rows
    for sets in published_counts().values()
    for files in sets.values()
    for path, rows in files.items()
}
WHOLE = {source: _ROWS[SOURCES[source][0]] for source in ("snli", "mnli", "nli-simcse", "wiki")}
"""Numbers of rows of the papers' training sets, without rows that lack a label."""

JOINED = {"nli": ("snli", "mnli"), "nli-partial": ("snli-partial", "mnli-partial")}
"""Names for the concatenated labeled pairs of several sources."""

NLI_ENTAILED = 314_315
"""Rows with entailment in the whole train sets of SNLI (183,416) and MultiNLI (130,899)."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def is_named(source: str) -> bool:
    """Whether a source is a name that this module defines."""
    return source in ("toy", "sts-b", *JOINED, *SOURCES)


def open_source(
    kind: Rows, config: DataConfig, root: Path | None, split: str = "train"
) -> tuple[pa.Table, Origin]:
    """Read the rows of one source, possibly more than `limit`; check only their columns.

    Args:
        kind: The kind of rows to make.
        config: Names the source: `toy`, `sts-b` (its train split), a name in `SOURCES` or
            `JOINED`, a plugin's source, a file, a folder saved by `datasets`, or a hub data set as
            `owner/name` (its `train` split). With a limit, a partial set may replace a set in
            `WHOLE`.
        root: The data root; read only for `sts-b` and the names in `SOURCES` and `JOINED`.
        split: The split to read from a file with a column `split`.

    Raises:
        DataError: The source does not exist, cannot be read, is not the whole set, or lacks
            columns of such rows.
        PluginError: A plugin's source raises an error, or yields something else than dicts.
    """
    source, limit = config.source, config.limit
    if source == "toy":
        table, where = (toy_graded if kind == "graded_pairs" else toy_nli)(), Origin("toy")
    elif source == "sts-b":
        table = _benchmark(existing_root(root, "data.source = sts-b"))
        where = Origin("STSBenchmark/sts-train.csv")
    elif source in JOINED:
        parts = [_open_named(part, root, source, limit) for part in JOINED[source]]
        # Two files may number their labels differently, so each file is normalized before they are
        # joined.
        table = pa.concat_tables(numbered_rows(*named) for named in parts)
        where = Origin(" + ".join(str(origin) for _, origin in parts))
    elif source in SOURCES:
        table, where = _open_named(source, root, source, limit)
    elif own := EXTENSIONS.get(("source", source)):
        table, where = rows_of(
            own, columns_of(config.columns), partial(roles_read, kind), others=True
        )
    else:
        table, where = _open_own(config, partial(roles_read, kind))
    where = where if where.columns else replace(where, columns=tuple(table.column_names))
    table, where = _of_split(table, where, split)
    table, where, judges = _judges(kind, table, where, config)
    names = columns_read(kind, table.column_names, where)
    table, where = _spread_positives(table, where)
    table, where = _positives(table, where, judges, config)
    table, where = _told(table, where)
    table = _number_negatives(table, where) if kind == "triplets" else table
    if config.positives == "rows" and "row" in table.column_names:
        table = table.drop_columns("row")
    return _filled(table, names, where) if config.blanks == "drop" else (table, where)


def _of_split(table: pa.Table, where: Origin, split: str) -> tuple[pa.Table, Origin]:
    """The rows of a split, by the column `split`; all rows if there is no such column.

    Raises:
        DataError: A split's name is unknown, or no row belongs to the wanted split.
    """
    if "split" not in table.column_names:
        return table, where
    values = [str(value or "") for value in table.column("split").to_pylist()]
    named = [split_named(value) for value in values]
    if None in named:
        row = named.index(None)
        rule = "must be train, dev or test"
        move = 'Correct the value, or ignore the column: data.columns = { ignored = "split" }.'
        raise DataError(
            Fault(where.at([row]), key="split", value=repr(values[row]), rule=rule, move=move)
        )
    rows = np.flatnonzero(np.array(named) == split)
    if not len(rows):
        rule = f"no row belongs to the split {split}"
        raise DataError(
            Fault(str(where), key="split", rule=rule, move="Give a file with such rows.")
        )
    note = f"{len(rows):,} of {len(named):,} rows belong to the split {split}"
    others = tuple(sorted({one for one in named if one is not None} - {split}))
    table = table.drop_columns("split").take(pa.array(rows))
    return table, replace(where.take(rows), notes=(*where.notes, note), splits=others)


def _judges(
    kind: Rows, table: pa.Table, where: Origin, config: DataConfig
) -> tuple[pa.Table, Origin, list[str]]:
    """The columns that judge the pairs; for graded pairs, a single such column becomes the score.

    NLI's labels do not count: rows of premises and hypotheses read them by a rule of their own.
    """
    is_nli = {"premise", "hypothesis", "label"} <= {*table.column_names}
    is_nli = is_nli and not names_no_nli(table.column("label"))
    if kind in ("labeled_pairs", "sentences") or is_nli:
        return table, where, []
    refuse_false_negatives(table, where)
    found = list(judging(table, config.columns))
    if kind != "graded_pairs":
        others = {"label", "score"} - {*found}
        names = [f"{UNREAD}{n}" if n in others else n for n in table.column_names]
        return table.rename_columns(names), where, found
    if "score" not in table.column_names and len(found) == 1:
        scores = as_scores(table, found[0], where)
        table = table.append_column("score", scores).drop_columns(found)
        note = f"the column {found[0].removeprefix(UNREAD)} is read as the score"
        where = replace(where, notes=(*where.notes, note))
    return table, where, []


def _positives(
    table: pa.Table, where: Origin, judges: Sequence[str], config: DataConfig
) -> tuple[pa.Table, Origin]:
    """The rows that match by every judging column; these columns are dropped."""
    for role in judges:
        found, condition = positives(table, role, config.min_score, where)
        note = f"rows with {condition} are read as positives: {found.sum():,} of {len(found):,}"
        rows = np.flatnonzero(found)
        table, where = table.take(pa.array(rows)), where.take(rows)
        where = replace(where, notes=(*where.notes, note))
    return table.drop_columns(list(judges)), where


def _told(table: pa.Table, where: Origin) -> tuple[pa.Table, Origin]:
    """Drop the columns without a role, and note their names."""
    unread = [role for role in table.column_names if role.startswith(UNREAD)]
    if unread:
        names = ", ".join(role.removeprefix(UNREAD) for role in unread)
        where = replace(where, notes=(*where.notes, f"these columns are not read: {names}"))
    return table.drop_columns(unread), where


def _open_own(config: DataConfig, read: Read) -> tuple[pa.Table, Origin]:
    path, columns = Path(config.source).expanduser(), columns_of(config.columns)
    if path.is_dir():
        return _read_dataset(str(path), columns, read)
    if path.exists() or path.suffix in SUFFIXES:
        limit = None if config.blanks == "drop" else config.limit
        return read_table(path, limit, columns, read, others=True)
    # The hub is asked only for names like `owner/name`, because a mistyped file name would wait
    # for a timeout.
    if _HUB_NAME.fullmatch(config.source):
        return _read_dataset(config.source, columns, read)
    names = ["toy", "sts-b", *JOINED, *SOURCES, *(n for k, n in EXTENSIONS if k == "source")]
    near = difflib.get_close_matches(config.source, names, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    rule = (
        f"must be a known source ({', '.join(names)}), a file, a folder or the name of "
        "a hub data set (owner/name)"
    )
    raise DataError(
        Fault(
            "data.source",
            value=config.source,
            rule=rule,
            move=f"{hint}Name a source, or load its plugin by --plugin.",
        )
    )


def rows_of(
    own: Extension, columns: Mapping[str, str], read: Read, *, others: bool = False
) -> tuple[pa.Table, Origin]:
    """The rows of a plugin's source; columns are named as by `read_table`.

    Raises:
        DataError: The rows lack a column that the user named.
        PluginError: The source raises an error, or yields something else than dicts.
    """
    try:
        rows = list(own.value())
    except (Exception, SystemExit) as error:
        raise own.failure("", error) from error
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise own.failure("", "must yield at least one dict, and nothing but dicts")
    names, where = dict.fromkeys(key for row in rows for key in row), f"{own.plugin}: {own.name}"
    try:
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
    except (pa.ArrowException, TypeError) as error:
        rule = f"must yield values of one type in each column ({first_line(error)})"
        raise own.failure("", rule) from None
    roles = roles_of([*names], columns, read, where, others=others)
    return by_role(table, roles), Origin(where, tuple(names))


def _filled(table: pa.Table, names: tuple[str, ...], where: Origin) -> tuple[pa.Table, Origin]:
    """Drop rows with a blank sentence."""
    blank = np.zeros(len(table), dtype=bool)
    for name in names:
        if name not in NUMBERS:
            blank |= np.asarray(blank_sentences(text_column(table, name, where)))
    kept = np.flatnonzero(~blank)
    dropped = where.take(np.flatnonzero(blank)).numbers
    lost = () if dropped is None else tuple(dropped.tolist())
    return table.take(pa.array(kept)), replace(where.take(kept), dropped=lost)


def shown_source(name: str) -> str:
    """A source's name that is equal on every machine: of an absolute path, the last component."""
    return Path(name).name if Path(name).is_absolute() else name


def _open_named(
    source: str, root: Path | None, asked: str, limit: int | None
) -> tuple[pa.Table, Origin]:
    folder = existing_root(root, f"data.source = {asked}")
    for name in SOURCES[source]:
        if (folder / name).exists():
            table, where = read_table(folder / name, limit)
            if limit is None and source in WHOLE:
                _require_whole(table, source, where)
            return table, replace(where, name=name)
    rule = f"the data root must hold {' or '.join(SOURCES[source])}"
    move = "Copy the file there, or give another root: `--data DIR` or TUNE_SENTCL_DATA."
    raise DataError(Fault(str(folder), key="data.source", value=asked, rule=rule, move=move))


def require_enough(rows: pa.Table, source: str, limit: int | None) -> pa.Table:
    """Return the rows, after a check that a paper's set has as many as `limit` asks for.

    Other sources may have fewer rows than `limit`.

    Raises:
        DataError: A paper's set has fewer rows than `limit`.
    """
    papers = all(part in WHOLE for part in JOINED.get(source, (source,)))
    if papers and limit is not None and len(rows) < limit:
        rule = f"{source} has only {len(rows):,} examples that fit the method"
        move = (
            f"Give --set data.limit={len(rows)} or less, or copy the whole file to the data root."
        )
        raise DataError(Fault("data.limit", value=str(limit), rule=rule, move=move))
    return rows


def _require_whole(table: pa.Table, source: str, where: Origin) -> None:
    """Refuse a partial set that has the name of the whole set, because results name the set."""
    count = len(table)
    if "label" in table.column_names:
        count = int((numbered_rows(table, where)["label"].to_numpy() >= 0).sum())
    if count != WHOLE[source]:
        rule = f"{source} stands for the whole set of {WHOLE[source]:,} examples"
        move = (
            "Copy the whole file there, or set the number of examples to use: --set data.limit=N."
        )
        raise DataError(
            Fault(str(where), key="data.source", value=f"{count:,} examples", rule=rule, move=move)
        )


def _benchmark(root: Path) -> pa.Table:
    (pairs,) = read_task(root, "STS-B", "train").subsets
    columns = {"sentence1": pairs.sentences1, "sentence2": pairs.sentences2, "score": pairs.gold}
    return pa.table({name: list(values) for name, values in columns.items()})


def _read_dataset(name: str, columns: Mapping[str, str], read: Read) -> tuple[pa.Table, Origin]:
    """Read a folder from `save_to_disk`, or a hub data set; of several splits, read `train`."""
    # This import is not at the top, because it is slow.
    import datasets
    from datasets.exceptions import DatasetsError

    saved = Path(name).is_dir()
    try:
        dataset = (
            datasets.load_from_disk(name) if saved else datasets.load_dataset(name, split="train")
        )
        if isinstance(dataset, datasets.DatasetDict) and "train" in dataset:
            dataset = dataset["train"]
    except (OSError, ValueError, pa.ArrowException, DatasetsError) as error:
        reason = first_line(error)
        if saved:
            rule = f"the folder was not saved by `datasets` ({reason})"
            move = "Name a folder written by `save_to_disk`, or a file inside this one."
            raise DataError(Fault(name, rule=rule, move=move)) from None
        rule = f"this is no file or folder, and no hub data set of this name was found ({reason})"
        move = "Check the name and the network, or name a file."
        raise DataError(Fault("data.source", value=name, rule=rule, move=move)) from None
    if not isinstance(dataset, datasets.Dataset):
        rule = f"there is no split `train`; the splits are {', '.join(dataset)}"
        raise DataError(Fault(name, rule=rule, move="Name the folder of one split."))
    roles = roles_of(dataset.column_names, columns, read, name, others=True)
    types = dataset.features.arrow_schema
    left = [
        role
        for role, column in roles.items()
        if role.startswith(UNREAD) and not is_plain(column, types.field(column).type)
    ]
    wanted = [column for role, column in roles.items() if role not in left]
    # `[:]` below applies an earlier `select` or `shuffle` of the data set; its Arrow table `data`
    # holds all rows.
    chosen = dataset.select_columns(wanted)
    table = chosen.with_format("arrow")[:].select(wanted)
    where = Origin(name, columns=tuple(dataset.column_names))
    metadata = chosen.features.arrow_schema.metadata
    read_roles = {role: column for role, column in roles.items() if role not in left}
    rows = by_role(table.replace_schema_metadata(metadata), read_roles)
    for role in left:
        rows = rows.append_column(role, pa.nulls(len(rows)))
    return rows, where


def _spread_positives(table: pa.Table, where: Origin) -> tuple[pa.Table, Origin]:
    """Make each positive of a list a row; the new column `row` (int64) numbers the lists.

    An empty list becomes one null.
    """
    if "positive" not in table.column_names or not _is_list(table.column("positive").type):
        return table, where
    column = table.column("positive")
    items = [texts or [None] for texts in column.to_pylist()]
    rows = np.repeat(np.arange(len(items)), [len(texts) for texts in items])
    spread = {"positive": pa.array(chain.from_iterable(items), column.type.value_type)}
    # A column whose lists hold one score for each positive is spread in the same way.
    for role in table.column_names:
        if role.startswith(UNREAD) and _is_list(table.column(role).type):
            lists = [values or [None] for values in table.column(role).to_pylist()]
            if list(map(len, lists)) == list(map(len, items)):
                kind = table.column(role).type.value_type
                spread[role] = pa.array(chain.from_iterable(lists), kind)
    table = table.drop_columns([*spread]).take(pa.array(rows))
    for role, values in spread.items():
        table = table.append_column(role, values)
    return table.append_column("row", pa.array(rows)), where.take(rows)


def _number_negatives(table: pa.Table, where: Origin) -> pa.Table:
    """Name negatives `negative_1` and so on; lists give a column for each place of an item."""
    numbered = sorted(filter(NEGATIVE.fullmatch, table.column_names), key=lambda n: (len(n), n))
    names = [n for n in ("negative", *numbered, "negatives") if n in table.column_names]
    columns: list[pa.ChunkedArray | pa.Array] = []
    for name, column in zip(names, map(table.column, names), strict=True):
        if _is_list(column.type):
            lists = [items or [] for items in column.to_pylist()]
            for place in range(max(map(len, lists), default=0)):
                texts = [items[place] if place < len(items) else None for items in lists]
                columns.append(pa.array(texts, column.type.value_type))
        elif name != "negatives" or column.null_count < len(column):
            columns.append(column)
    table = table.drop_columns(names)
    for number, column in enumerate(columns, 1):
        table = table.append_column(f"negative_{number}", column)
    return table


def _is_list(kind: pa.DataType) -> bool:
    kinds = (
        *(pa.types.is_list, pa.types.is_large_list),
        *(pa.types.is_list_view, pa.types.is_fixed_size_list),
    )
    return any(is_kind(kind) for is_kind in kinds)
