"""A table is a folder: one compacted file, `all.parquet`, and one file for each newer trial."""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.schema import TABLES

COMPACTED = "all"
"""The compacted file's name, without its ending; no trial_id is like it."""

_READERS = 8  # on an object store the way there takes longest
_TRIES = 5


def file_of(folder: str, stem: str) -> str:
    """The name of a trial's file, or of the compacted one."""
    return f"{folder}/{stem}.parquet"


def read_folder(
    files: StudyFiles, folder: str, trial_ids: Collection[str] | None = None
) -> pa.Table:
    """Read a table whole.

    A trial's own file wins over its rows in the compacted one: a crash in the middle of compacting
    leaves both. Columns that an older file lacks are null; those that a newer release has added
    come last.

    Args:
        files: The study.
        folder: `trials`, `scores` or `curves`.
        trial_ids: Leave out all other trials; None for none.

    Raises:
        StudyError: A file is damaged, or the disk refused.
    """
    for _ in range(_TRIES):
        try:
            return _read_once(files, folder, trial_ids)
        except FileNotFoundError:  # the driver compacted it since it was listed
            continue
    rule, move = "changes faster than it can be read", "Read it again later."
    raise StudyError(Fault(files.shown(folder), "", "", rule, move))


def _read_once(files: StudyFiles, folder: str, trial_ids: Collection[str] | None) -> pa.Table:
    schema = TABLES[folder]
    wanted = None if trial_ids is None else {*trial_ids, COMPACTED}
    stems = [s for s in files.stems(folder) if wanted is None or s in wanted]

    def read(stem: str) -> pa.Table:
        return _read_file(files, folder, stem)

    with ThreadPoolExecutor(_READERS) as pool:
        tables = dict(zip(stems, pool.map(read, stems), strict=True))
    if COMPACTED in tables:
        own = [stem for stem in stems if stem != COMPACTED]
        table = without(tables[COMPACTED], own)
        tables[COMPACTED] = table if trial_ids is None else only(table, trial_ids)
    joined = pa.concat_tables([schema.empty_table(), *tables.values()], promote_options="default")
    return joined.replace_schema_metadata(schema.metadata).combine_chunks()


def _read_file(files: StudyFiles, folder: str, stem: str) -> pa.Table:
    name = file_of(folder, stem)
    try:
        return conform(files.read_table(name), TABLES[folder])
    except (KeyError, pa.ArrowException) as error:
        rule = f"must have the columns of a study's {folder} ({error})"
        move = "Restore it from a copy, or read the study with the release that wrote it."
        raise StudyError(Fault(files.shown(name), "", "", rule, move)) from error


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give a table the schema's columns, in its order; further columns stay, behind them.

    Raises:
        KeyError: A column is lacking that can never be null.
        pyarrow.ArrowInvalid: A column holds what its type cannot.
    """
    if table.schema.equals(schema):
        return table
    lacking = [f.name for f in schema if not f.nullable and f.name not in table.column_names]
    if lacking:
        raise KeyError(", ".join(lacking))
    present = set(table.column_names)
    columns = [
        table[f.name].cast(f.type) if f.name in present else pa.nulls(len(table), f.type)
        for f in schema
    ]
    further = [f for f in table.schema if f.name not in schema.names]
    whole = pa.schema([*schema, *further], metadata=schema.metadata)
    return pa.table([*columns, *(table[f.name] for f in further)], schema=whole)


def only(table: pa.Table, trial_ids: Collection[str]) -> pa.Table:
    """The rows of these trials."""
    return table.filter(_mask(table, trial_ids))


def without(table: pa.Table, trial_ids: Collection[str]) -> pa.Table:
    """The rows of all trials but these."""
    return table.filter(pc.invert(_mask(table, trial_ids)))


def _mask(table: pa.Table, trial_ids: Collection[str]) -> pa.Array:
    return pc.is_in(table["trial_id"], value_set=pa.array(sorted(trial_ids), pa.string()))
