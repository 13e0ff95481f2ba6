"""One file of a table: its columns brought to the schema, its rows one row group at a time."""

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
    """An open file of a table; `opened` makes it.

    Attributes:
        folder: The table.
        name: The file, for messages.
        file: A `pyarrow.parquet.ParquetFile`.
        columns: The names of its columns.
        held: The trials that a segment says it holds; a compacted file need not, for it is lowest.
    """

    folder: str
    name: str
    file: Any
    columns: tuple[str, ...]
    held: frozenset[str]

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, and behind them those that a newer release has added."""
        schema = TABLES[self.folder]
        if set(self.columns).issubset(schema.names):
            return schema
        return widened(schema, self.file.schema_arrow)

    def tables(
        self, columns: Sequence[str] | None = None, where: Any = None
    ) -> Iterator[pa.Table]:
        """The rows of each row group.

        Args:
            columns: Their names; `trial_id` comes along. None for all.
            where: A `pyarrow.compute.Expression`; None for all rows.

        Raises:
            DamagedError: A column holds what its type cannot.
        """
        schema = selected(self.schema, columns)
        # The filter may ask for any column.
        wanted = set(self.columns if where is not None else schema.names)
        names = [name for name in self.columns if name in wanted]
        for number in range(self.file.num_row_groups):
            table = self.file.read_row_group(number, names, use_threads=False)
            table.validate(
                full=True
            )  # a flipped bit in a text shows up when it is looked at, else
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
        FileNotFoundError: It is not there (any more).
        DamagedError: It is not what was written.
        StudyError: The disk refused.
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
    """Give a table the columns of a schema, in its order and types; null where it lacks them.

    Raises:
        pyarrow.ArrowInvalid: A column holds what its type cannot.
    """
    if table.schema.equals(schema):
        return table
    whole = _completed(table, schema)
    columns = (whole[f.name] for f in schema)
    cast = [
        c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)
    ]
    return pa.table(cast, schema=schema)


def widened(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """A schema with the columns behind it that only the other one has."""
    there = set(schema.names)
    further = [f for f in other if f.name not in there]
    return pa.schema([*schema, *further], metadata=schema.metadata)


def selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Some fields of a schema, `trial_id` among them."""
    if columns is None:
        return schema
    names = dict.fromkeys(["trial_id", *columns])
    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)


def only(table: pa.Table, trial_ids: Iterable[str]) -> pa.Table:
    """The rows of these trials."""
    return table.filter(_mask(table, trial_ids))


def without(table: pa.Table, trial_ids: Collection[str]) -> pa.Table:
    """The rows of all trials but these."""
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
