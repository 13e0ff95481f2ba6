"""One file of a table, read by row groups and converted to the table's schema."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.errors import DamagedError, Fault
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.schema import SCORES, TABLES
from tune_sentcl.store.segments import file_of, listed_trials_of, parse_stem

_REPEATING = {
    "trials": (),
    "scores": tuple(f.name for f in SCORES if f.type == pa.string()),
    "curves": ("trial_id", "metric"),
}


@dataclass(frozen=True)
class Part:
    """An open file of a table, made by `open_part`.

    Attributes:
        folder: The table.
        name: The file's path or URL for messages.
        file: A `pyarrow.parquet.ParquetFile`.
        columns: The names of its columns.
        listed_trials: The trials that a segment lists; empty for other files.
    """

    folder: str
    name: str
    file: Any
    columns: tuple[str, ...]
    listed_trials: frozenset[str]

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, then the file's further columns, which a newer release wrote."""
        schema = TABLES[self.folder]
        if set(self.columns).issubset(schema.names):
            return schema
        return widened(schema, self.file.schema_arrow)

    def tables(
        self, columns: Sequence[str] | None = None, where: Any = None
    ) -> Iterator[pa.Table]:
        """Read the row groups one by one.

        Args:
            columns: Columns to read besides `trial_id`; None for all.
            where: A `pyarrow.compute.Expression` that filters rows; None for all.

        Raises:
            DamagedError: A value does not fit the type of its column.
        """
        schema = select_fields(self.schema, columns)
        # The filter may use any column.
        wanted = set(self.columns if where is not None else schema.names)
        names = [name for name in self.columns if name in wanted]
        for number in range(self.file.num_row_groups):
            table = self.file.read_row_group(number, names, use_threads=False)
            table.validate(full=True)  # else a flipped bit in a text raises only on its first use
            if where is not None:
                table = _with_missing_columns(table, self.schema).filter(where)
            try:
                yield conform(table, schema)
            except pa.ArrowException as error:
                raise DamagedError(_schema_fault(self.folder, self.name, str(error))) from error


@contextmanager
def open_part(files: StudyFiles, folder: str, stem: str) -> Iterator[Part]:
    """Open a file of a table.

    Raises:
        FileNotFoundError: The file is missing, or was deleted meanwhile.
        DamagedError: It is not a Parquet file with the table's required columns.
    """
    name = file_of(folder, stem)
    shared = parse_stem(stem) is None
    with files.reading(name, _REPEATING[folder] if shared else ()) as file:
        schema = file.schema_arrow
        columns = tuple(schema.names)
        lacking = [f.name for f in TABLES[folder] if not f.nullable and f.name not in columns]
        if lacking:
            raise DamagedError(_schema_fault(folder, files.display_path(name), ", ".join(lacking)))
        listed_trials = listed_trials_of(schema) if shared else frozenset()
        yield Part(folder, files.display_path(name), file, columns, listed_trials)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Select, order and cast the columns of a schema; missing columns are null."""
    if table.schema.equals(schema):
        return table
    full = _with_missing_columns(table, schema)
    columns = (full[f.name] for f in schema)
    cast = [
        c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)
    ]
    return pa.table(cast, schema=schema)


def widened(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """A schema with the columns that only the other one has appended."""
    there = set(schema.names)
    further = [f for f in other if f.name not in there]
    return pa.schema([*schema, *further], metadata=schema.metadata)


def select_fields(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The fields `trial_id` and `columns` of a schema; None: all."""
    if columns is None:
        return schema
    names = dict.fromkeys(["trial_id", *columns])
    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)


def rows_of_trials(table: pa.Table, trial_ids: Iterable[str]) -> pa.Table:
    """The rows of these trials."""
    return table.filter(_trial_mask(table, trial_ids))


def rows_without_trials(table: pa.Table, trial_ids: Collection[str]) -> pa.Table:
    """The rows of all other trials."""
    return table.filter(pc.invert(_trial_mask(table, trial_ids))) if trial_ids else table


def _trial_mask(table: pa.Table, trial_ids: Iterable[str]) -> pa.Array:
    return pc.is_in(table["trial_id"], value_set=pa.array(list(trial_ids), pa.string()))


def _with_missing_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(table.column_names)
    for field in schema:
        if field.name not in there:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def _schema_fault(folder: str, where: str, what: str) -> Fault:
    rule = f"must have the columns of a study's {folder} ({what})"
    move = "Restore it from a copy, or read the study with the release that wrote it."
    return Fault(where, "", "", rule, move)
