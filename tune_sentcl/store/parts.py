"""A table as a folder of parts: Parquet files `000001.parquet`, `000002.parquet`, ...

All rows of a trial are in one part. Each commit replaces the last part, until it is full. A row
that is replaced later is replaced in its own part, so a reader of all parts sees each trial once.
"""

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.rows import schema_of

_PART = re.compile(r"[0-9]{6,}\.parquet")
_WRITER = b"tune_sentcl.writer"


def part_names(files: StudyFiles, folder: str) -> list[str]:
    """The parts of a table, in order, by their names in the study.

    Raises:
        StudyError: The folder holds another Parquet file, which readers of the folder would read,
            too.
    """
    names = [name for name in files.names(folder) if name.endswith(".parquet")]
    for name in names:
        if not _PART.fullmatch(name):
            rule = f"must hold only parts such as 000001.parquet, but holds {name}"
            move = (
                "Move that file away; if another release wrote the study, read it with that "
                "release."
            )
            raise StudyError(Fault(files.display_path(folder), rule=rule, move=move))
    # Numbers have no leading zeros, so shorter names come first.
    return [f"{folder}/{name}" for name in sorted(names, key=len)]


def next_part(folder: str, names: Sequence[str]) -> str:
    """The name of the part after the last part."""
    number = int(names[-1].removeprefix(f"{folder}/").partition(".")[0]) + 1 if names else 1
    return f"{folder}/{number:06d}.parquet"


def encoded_part(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    # Statistics would double the size of the footer.
    pq.write_table(table, sink, write_statistics=False)
    return bytes(sink.getvalue())


def marked_part(data: bytes, writer: str) -> tuple[bytes, int]:
    """A part's rows in other bytes, because equal bytes have equal ETags; and their number."""
    table = pq.read_table(pa.BufferReader(data))
    metadata = {**(table.schema.metadata or {}), _WRITER: writer.encode()}
    return encoded_part(table.replace_schema_metadata(metadata)), len(table)


def read_part(
    files: StudyFiles,
    part: str,
    data: bytes | None,
    columns: Sequence[str] | None = None,
    rows: object = None,
) -> pa.Table:
    """Read a part.

    Args:
        files: The study.
        part: The part's name.
        data: Its content; None if it is missing.
        columns: Columns to read besides `trial_id`; None for all, columns of a newer release last.
        rows: A `pyarrow.compute.Expression` that selects rows; None for all.

    Raises:
        DamagedError: The part is not a Parquet file with the table's columns.
    """
    folder, where = part.partition("/")[0], files.display_path(part)
    try:
        fragment = ds.ParquetFileFormat().make_fragment(pa.BufferReader(data or b""))
        schema, stored = schema_of(folder), fragment.physical_schema
        lacking = [f.name for f in schema if not f.nullable and f.name not in stored.names]
        if lacking:
            rule = (
                f"must have the columns of a study's table {folder} (missing: "
                f"{', '.join(lacking)})"
            )
            move = (
                "Restore the file from a copy, or read the study with the release that wrote it."
            )
            raise DamagedError(Fault(where, rule=rule, move=move))
        full = widened(schema, stored)  # columns that the file lacks become null
        names = select_fields(full, columns).names
        table = fragment.to_table(schema=full, columns=names, filter=rows, use_threads=False)
        # Otherwise a flipped bit in a text would raise an error only when someone uses the text.
        table.validate(full=True)
        return table.replace_schema_metadata(full.metadata)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        rule = f"must be a complete Parquet file of {folder} ({error})"
        move = "Restore the file from a copy; the other parts are intact."
        raise DamagedError(Fault(where, rule=rule, move=move)) from error


def select_fields(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The fields `trial_id` and `columns` of a schema; None: all."""
    if columns is None:
        return schema
    names = dict.fromkeys(["trial_id", *columns])
    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)


def joined(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate tables; a column that a table lacks is null in its rows."""
    table = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
    return table.replace_schema_metadata(schema.metadata).combine_chunks()


def rows_of_trials(table: pa.Table, trial_ids: Iterable[str]) -> pa.Table:
    """The rows of these trials."""
    wanted = pa.array(list(trial_ids), pa.string())
    return table.filter(pc.is_in(table["trial_id"], value_set=wanted))


def widened(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """A schema, extended by the columns that only the other schema has."""
    there = set(schema.names)
    further = [f for f in other if f.name not in there]
    return pa.schema([*schema, *further], metadata=schema.metadata)
