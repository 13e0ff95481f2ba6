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
from tune_sentcl.store.segments import file_of, held_by, split

_REPEATING = {
    "trials": (),
    "scores": tuple(f.name for f in SCORES if f.type == pa.string()),
    "curves": ("trial_id", "metric"),
}


@dataclass(frozen=True)
class Part:
    """An open file of a table, made by `opened`.

    Attributes:
        folder: The table.
        name: The file's path or URL for messages.
        file: A `pyarrow.parquet.ParquetFile`.
        columns: The names of its columns.
        held: The trials that a segment lists; empty for other files.
    """

    folder: str
    name: str
    file: Any
    columns: tuple[str, ...]
    held: frozenset[str]

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
        schema = selected(self.schema, columns)
        # The filter may use any column.
        wanted = set(self.columns if where is not None else schema.names)
        names = [name for name in self.columns if name in wanted]
        for number in range(self.file.num_row_groups):
            table = self.file.read_row_group(number, names, use_threads=False)
            table.validate(full=True)  # else a flipped bit in a text raises only on its first use
            if where is not None:
                table = _completed(table, self.schema).filter(where)
            try:
                yield conform(table, schema)
            except pa.ArrowException as error:
                raise DamagedError(_unfit(self.folder, self.name, str(error))) from error


@contextmanager
def opened(files: StudyFiles, folder: str, stem: str) -> Iterator[Part]:
    """Open a file of a table.

    Raises:
        FileNotFoundError: The file is missing, or was deleted meanwhile.
        DamagedError: It is not a Parquet file with the table's required columns.
    """
    name = file_of(folder, stem)
    shared = split(stem) is None
    with files.reading(name, _REPEATING[folder] if shared else ()) as file:
        schema = file.schema_arrow
        columns = tuple(schema.names)
        lacking = [f.name for f in TABLES[folder] if not f.nullable and f.name not in columns]
        if lacking:
            raise DamagedError(_unfit(folder, files.shown(name), ", ".join(lacking)))
        held = held_by(schema) if shared else frozenset()
        yield Part(folder, files.shown(name), file, columns, held)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Select, order and cast the columns of a schema; missing columns are null."""
    if table.schema.equals(schema):
        return table
    whole = _completed(table, schema)
    columns = (whole[f.name] for f in schema)
    cast = [
        c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)
    ]
    return pa.table(cast, schema=schema)


def widened(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """A schema with the columns that only the other one has appended."""
    there = set(schema.names)
    further = [f for f in other if f.name not in there]
    return pa.schema([*schema, *further], metadata=schema.metadata)


def selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The fields `trial_id` and `columns` of a schema; None: all."""
    if columns is None:
        return schema
    names = dict.fromkeys(["trial_id", *columns])
    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)


def only(table: pa.Table, trial_ids: Iterable[str]) -> pa.Table:
    """The rows of these trials."""
    return table.filter(_mask(table, trial_ids))


def without(table: pa.Table, trial_ids: Collection[str]) -> pa.Table:
    """The rows of all other trials."""
    return table.filter(pc.invert(_mask(table, trial_ids))) if trial_ids else table


def _mask(table: pa.Table, trial_ids: Iterable[str]) -> pa.Array:
    return pc.is_in(table["trial_id"], value_set=pa.array(list(trial_ids), pa.string()))


def _completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(table.column_names)
    for field in schema:
        if field.name not in there:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def _unfit(folder: str, where: str, what: str) -> Fault:
    rule = f"must have the columns of a study's {folder} ({what})"
    move = "Restore it from a copy, or read the study with the release that wrote it."
    return Fault(where, "", "", rule, move)
