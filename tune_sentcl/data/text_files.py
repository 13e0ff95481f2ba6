"""Text files as lines, and tables of texts: Parquet, CSV, TSV, JSONL and plain lines."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from tune_sentcl.errors import DataError, Fault, first_line

Encoding = Literal["utf-8", "latin-1"]


def read_lines(path: Path, encoding: Encoding) -> list[str]:
    r"""Read a text file as rows, at least one.

    Rows end only at `\n`. One final newline, the `\r` of CRLF line ends and a UTF-8 byte order
    mark are dropped; every other empty line is a row.

    Raises:
        DataError: The file is missing, a folder, unreadable, empty, or not in this encoding.
    """
    raw = _read_bytes(path)
    if not raw:
        raise DataError(Fault(str(path), "", "", "the file is empty", "Copy it again."))
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            Fault(
                where=f"{path} line {line}",
                key="",
                value=f"byte 0x{raw[error.start]:02x} at offset {error.start}",
                rule=f"the file must be {encoding} text",
                next_move=f"Convert it to {encoding}, or copy it again.",
            )
        ) from None
    if encoding == "utf-8":
        text = text.removeprefix("\ufeff")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        fault = Fault(
            str(path), "", "", "the file does not exist", "Check the name, or copy the file there."
        )
    except IsADirectoryError:
        fault = Fault(
            str(path), "", "", "this is a folder, not a file", "Name the file inside it."
        )
    except OSError as error:
        reason = error.strerror or type(error).__name__
        fault = Fault(
            str(path), "", "", f"the file cannot be read ({reason})", "Check its permissions."
        )
    raise DataError(fault)


READ_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Arrow raises these for a file that it cannot read; the last one for damaged column names."""

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")


Which = Callable[[str], bool]
"""A predicate on column names."""


def read_columns(path: Path, wanted: Which, text: Which, key: str, first: int | None) -> pa.Table:
    """Read a file by its suffix; CSV and TSV have a header and may quote cells with `"`.

    Args:
        path: A .parquet, .csv, .tsv or .jsonl file, or a .txt file with one sentence per line,
            which becomes the column `text`.
        wanted: The columns that are needed; other columns of Parquet are not read.
        text: The columns that hold text, even if all their values look like numbers.
        key: The setting that names the file, for messages.
        first: Enough rows of a Parquet file; None reads all.

    Returns:
        Its columns, not yet checked.

    Raises:
        DataError: The file is missing, of another kind, or broken, or has an unclosed quote.
    """
    if path.suffix not in SUFFIXES:
        rule = f"the file's name must end in {', '.join(SUFFIXES)}"
        raise DataError(Fault(str(path), "", "", rule, "Convert it, or correct its name."))
    if not path.is_file():
        rule = "this is a folder, not a file" if path.is_dir() else "the file does not exist"
        move = f"Check the name in {key}; a relative path begins at the working directory."
        raise DataError(Fault(str(path), "", "", rule, move))
    try:
        table = _parse(path, wanted, text, first)
        # Arrow has no kernel that takes rows of string views.
        plain = [
            f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f
            for f in table.schema
        ]
        table = table.cast(pa.schema(plain, table.schema.metadata))
        # The Parquet and JSON readers do not check UTF-8; this does.
        table.validate(full=True)
    except READ_ERRORS as error:
        rule = f"the file cannot be read as {path.suffix[1:]} ({first_line(error)})"
        raise DataError(Fault(str(path), "", "", rule, "Write or copy the file again.")) from None
    return table


def _parse(path: Path, wanted: Which, text: Which, first: int | None) -> pa.Table:
    if path.suffix == ".parquet":
        return _parse_parquet(path, wanted, first)
    if path.suffix == ".txt":
        return pa.table({"text": pa.array(read_lines(path, "utf-8"), pa.string())})
    if path.suffix == ".jsonl":
        _require_objects(path)
        # Read the schema first: Arrow would add typed columns that the file lacks.
        there = pyarrow.json.read_json(path).schema
        schema = pa.schema(
            [(f.name, pa.string() if text(f.name) else _without_times(f.type)) for f in there]
        )
        return pyarrow.json.read_json(
            path, parse_options=pyarrow.json.ParseOptions(explicit_schema=schema)
        )
    delimiter = "\t" if path.suffix == ".tsv" else ","
    raw = path.read_bytes()
    _require_closed(raw, path, delimiter)
    parsing = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pyarrow.csv.open_csv(pa.BufferReader(raw), parse_options=parsing) as file:
        names = file.schema.names
    for name in filter(wanted, names):
        if names.count(name) > 1:
            rule = "there are two columns of this name"
            raise DataError(Fault(str(path), name, "", rule, "Rename or leave out one of them."))
    texts = {name: pa.string() for name in names if text(name)}
    converting = pyarrow.csv.ConvertOptions(column_types=texts)
    whole = pa.BufferReader(raw)
    return pyarrow.csv.read_csv(whole, parse_options=parsing, convert_options=converting)


def _require_objects(path: Path) -> None:
    """Refuse a line that is no object: Arrow reads `null` as a row, or ends the process on it."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            found = line.lstrip(b"\xef\xbb\xbf \t\r\n")
            if found and not found.startswith(b"{"):
                where, move = f"{path} line {number}", "Write one object a line."
                raise DataError(Fault(where, "", "", "must be a JSON object", move))


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Read timestamps as text: Arrow parses JSON strings that look like dates."""
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


_QUOTED = {
    # Cells that begin with a quote; the group `end` is missing if no quote closes the cell.
    ",": re.compile(rb'(?<![^,\r\n])"[^"]*+(?:""[^"]*+)*+(?P<end>"(?![^,\r\n]))?'),
    "\t": re.compile(rb'(?<![^\t\r\n])"[^"\r\n]*+(?:""[^"\r\n]*+)*+(?P<end>"(?![^\t\r\n]))?'),
}


def _require_closed(raw: bytes, path: Path, delimiter: str) -> None:
    """Refuse a cell with an unclosed quote: Arrow would read on to the next quote.

    Tab-separated files often do not use quoting, so a cell there must close on its line.

    Raises:
        DataError: A cell is not closed.
    """
    for cell in _QUOTED[delimiter].finditer(raw):
        if cell["end"] is None:
            line = raw.count(b"\n", 0, cell.start()) + 1
            shown = raw[cell.start() : cell.start() + 40].splitlines()[0].decode(errors="replace")
            within = " on the same line" if delimiter == "\t" else ""
            rule = f'a cell that begins with " must end with "{within}, with those between doubled'
            move = 'Write "So" he said as """So"" he said"; JSONL needs no such quoting.'
            raise DataError(Fault(f"{path} line {line}", "", repr(shown), rule, move))


def _parse_parquet(path: Path, wanted: Which, first: int | None) -> pa.Table:
    present = [name for name in pq.read_schema(path).names if wanted(name)]
    if first is None:
        return pq.read_table(path, columns=present)
    with pq.ParquetFile(path) as file:
        # Pages are read on demand; the rest of a large file is not read.
        batch = next(file.iter_batches(first, columns=present), None)
        return file.read(columns=present) if batch is None else pa.Table.from_batches([batch])


@dataclass(frozen=True)
class Origin:
    """Where a table was read from, for messages.

    Attributes:
        name: The file or data set.
        path: The file; None for no file or several.
        columns: All its columns, including those that were not read.
        rows: The number of each table row in the file, from 0; None: the same number.
        dropped: How many rows of the file are not in the table.
    """

    name: str
    path: Path | None = None
    columns: tuple[str, ...] = ()
    rows: npt.NDArray[np.int64] | None = None
    dropped: int = 0

    def __str__(self) -> str:
        """The name."""
        return self.name

    def at(self, rows: Sequence[int]) -> str:
        """Name rows of the table by line number, or by row number if the file has no lines."""
        numbers = [int(row if self.rows is None else self.rows[row]) for row in rows]
        lines = [] if self.path is None else _first_lines(self.path)
        word, shown = "row", [number + 1 for number in numbers[:5]]
        if max(numbers) < len(lines):
            word, shown = "line", [lines[number] for number in numbers[:5]]
        more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
        return f"{self} {word}{'s' if len(rows) > 1 else ''} {', '.join(map(str, shown))}{more}"


def _first_lines(path: Path) -> list[int]:
    """The line on which each row of a text file begins; empty for files without lines."""
    if path.suffix == ".parquet" or not path.is_file():
        return []
    raw, header = path.read_bytes().replace(b"\0", b" "), 0
    if path.suffix in (".csv", ".tsv"):
        cells, header = _QUOTED["\t" if path.suffix == ".tsv" else ","], 1
        raw = cells.sub(lambda cell: cell[0].replace(b"\n", b"\0"), raw)
    found, line = [], 1
    blank = b" \t\r" if path.suffix == ".jsonl" else b"\r"
    for row in raw.split(b"\n"):
        if path.suffix == ".txt" or row.strip(blank):  # only in .txt is an empty line a row
            found.append(line)
        line += 1 + row.count(b"\0")
    return found[header:]


def file_columns(path: Path, table: pa.Table) -> tuple[str, ...]:
    """All columns of a file, including those that `table` lacks."""
    names = pq.read_schema(path).names if path.suffix == ".parquet" else table.column_names
    return tuple(names)


def value_kind(column: pa.ChunkedArray) -> pa.DataType:
    """The type of a column's values, also if it is dictionary-encoded."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in kinds)


def blank_sentences(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which sentences are null, empty or only white space."""
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
