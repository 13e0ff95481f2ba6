"""Text files as lines, and tables of texts: Parquet, CSV, TSV, JSONL and plain lines."""

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet as pq

from tune_sentcl.errors import DataError, Fault, first_line

Encoding = Literal["utf-8", "latin-1"]

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path, encoding: Encoding = "utf-8") -> str:
    """Read a text file that is not empty; a byte order mark of UTF-8 or UTF-16 counts.

    Raises:
        DataError: The file is missing, a folder, unreadable, empty, or not in this encoding.
    """
    raw = _read_bytes(path)
    if not raw:
        raise DataError(Fault(str(path), "", "", "the file is empty", "Copy it again."))
    if encoding == "utf-8" and b"\0" in raw[:2]:
        rule, move = "UTF-16 must begin with a byte order mark", "Convert the file to UTF-8."
        raise DataError(Fault(str(path), "", repr(raw[:4]), rule, move))
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        rule, move = "the file is UTF-32 text", "Convert the file to UTF-8."
        raise DataError(Fault(str(path), "", repr(raw[:4]), rule, move))
    marked = encoding == "utf-8" and raw.startswith(_UTF_16)
    name = "utf-16" if marked else encoding
    try:
        text = raw.decode(name)
    except UnicodeDecodeError as error:
        line = raw[: error.start].decode(name, "ignore").count("\n") + 1
        value = f"byte 0x{raw[error.start]:02x} at offset {error.start}"
        rule, move = f"the file must be {name} text", f"Convert it to {name}, or copy it again."
        raise DataError(Fault(f"{path} line {line}", "", value, rule, move)) from None
    return text.removeprefix("\ufeff") if encoding == "utf-8" else text


def read_lines(path: Path, encoding: Encoding) -> list[str]:
    r"""Read a text file as rows, at least one.

    Rows end only at `\n`. One final newline, the `\r` of CRLF line ends and a byte order mark are
    dropped; every other empty line is a row.

    Raises:
        DataError: See `read_text`.
    """
    text = read_text(path, encoding).removesuffix("\n")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        rule, move = "the file does not exist", "Check the name, or copy the file there."
    except IsADirectoryError:
        rule, move = "this is a folder, not a file", "Name the file inside it."
    except OSError as error:
        rule = f"the file cannot be read ({error.strerror or type(error).__name__})"
        move = "Check its permissions."
    raise DataError(Fault(str(path), "", "", rule, move))


READ_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Arrow raises these for a file that it cannot read; the last one for damaged column names."""

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")

Which = Callable[[str], bool]
"""A predicate on column names."""


def read_columns(path: Path, wanted: Which, text: Which, key: str, first: int | None) -> pa.Table:
    """Read a file by its suffix.

    CSV and TSV have a header, may quote cells with `"`, and hold text alone. The separator is the
    suffix's own, or else the one of comma, semicolon, tab and bar that splits the header.

    Args:
        path: A file with a suffix of `SUFFIXES`; a .txt file has a sentence per line, which
            becomes the column `text`.
        wanted: The needed columns; others of Parquet are not read, and those of JSONL are null.
        text: The columns that hold text or, in JSONL, lists of texts; in others of CSV an empty
            cell is null.
        key: The setting that names the file, for messages.
        first: Enough rows of a Parquet file; None reads all.

    Returns:
        Its columns, not yet checked.

    Raises:
        DataError: The file is missing, of another kind, or broken; the error names the line.
    """
    if path.suffix not in SUFFIXES:
        rule = f"the file's name must end in {', '.join(SUFFIXES)}"
        raise DataError(Fault(str(path), "", "", rule, "Convert it, or correct its name."))
    if not path.is_file():
        rule = "this is a folder, not a file" if path.is_dir() else "the file does not exist"
        move = f"Check the name in {key}; a relative path begins at the working directory."
        raise DataError(Fault(str(path), "", "", rule, move))
    if path.suffix == ".parquet":
        return _parquet(path, wanted, first)
    if path.suffix == ".txt":
        return pa.table({"text": pa.array(read_lines(path, "utf-8"), pa.string())})
    return (_json_table if path.suffix == ".jsonl" else _csv_table)(path, wanted, text)


def _parquet(path: Path, wanted: Which, first: int | None) -> pa.Table:
    try:
        file = pyarrow.dataset.dataset(path)
        present = [name for name in file.schema.names if wanted(name)]
        # The rest of a large file is not read.
        table = file.to_table(present) if first is None else file.head(first, columns=present)
        # Arrow has no kernel that takes rows of string views.
        plain = [
            f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f
            for f in table.schema
        ]
        table = table.cast(pa.schema(plain, table.schema.metadata))
        table.validate(full=True)  # the reader does not check UTF-8
    except READ_ERRORS as error:
        rule = f"the file cannot be read as parquet ({first_line(error)})"
        raise DataError(Fault(str(path), "", "", rule, "Write or copy the file again.")) from None
    return table


def _json_table(path: Path, wanted: Which, text: Which) -> pa.Table:
    found = _arrow_json(path, wanted, text)
    if found is not None:
        return found
    records, columns = list(_objects(path)), {}
    for name in dict.fromkeys(name for _, row in records for name in row):
        values = [row.get(name) if wanted(name) else None for _, row in records]
        try:
            columns[name] = _json_column(values, text=text(name))
        except (pa.ArrowException, ValueError):
            for (line, _), value in zip(records, values, strict=True):
                try:
                    _json_column([value], text=True)
                except (pa.ArrowException, ValueError) as error:
                    rule = f"must be text or a list of texts ({first_line(error)})"
                    where, move = f"{path} line {line}", "Write the sentences as strings."
                    raise DataError(Fault(where, name, json.dumps(value), rule, move)) from None
            raise
    return pa.table(columns)


def _arrow_json(path: Path, wanted: Which, text: Which) -> pa.Table | None:
    """A JSONL file by Arrow, in a quarter of the time; None if a row is unlike the first ones.

    Arrow's messages do not name the line, and it takes a column of dates for times.
    """
    raw = _read_bytes(path)
    if _NULL_ROW.search(raw):
        return None
    try:
        table = pa.json.read_json(pa.BufferReader(raw))
        table.validate(full=True)  # the reader does not check UTF-8
    except READ_ERRORS:
        return None
    texts = (pa.string(), pa.list_(pa.string()))
    columns = {name: table[name] for name in table.column_names if wanted(name)}
    if any(columns[name].type not in texts for name in columns if text(name)):
        return None
    empty = pa.nulls(table.num_rows)
    return pa.table({name: columns.get(name, empty) for name in table.column_names})


def _json_column(values: list[Any], *, text: bool) -> pa.Array:
    """Values of one type; if a row has a list of texts, a text is a list of one."""
    if text and any(isinstance(value, list) for value in values):
        lists = [[value] if isinstance(value, str) else value for value in values]
        return pa.array(lists, pa.list_(pa.string()))
    try:
        return pa.array(values, pa.string() if text else None)
    except (pa.ArrowException, OverflowError):  # of several types
        if text:
            raise
        return pa.array([None if v is None else str(v) for v in values], pa.string())


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object of a JSONL file with its line."""
    for line, text in enumerate(read_lines(path, "utf-8"), 1):
        if text.strip():
            try:
                found = json.loads(text, object_pairs_hook=_distinct)
            except (ValueError, RecursionError) as error:
                found = error
            if not isinstance(found, dict):
                rule = "must be a JSON object"
                rule += f" ({found})" if isinstance(found, Exception) else ""
                fault = Fault(f"{path} line {line}", "", "", rule, "Write one object a line.")
                raise DataError(fault)
            yield line, found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


_NULL_ROW = re.compile(rb"^[ \t]*null", re.MULTILINE)  # Arrow takes it for an object
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_ROWS = 65_536  # of CSV at a time: lists of cells take several times the memory of arrays


def _csv_table(path: Path, wanted: Which, text: Which) -> pa.Table:
    records = _records(path)
    _, header = next(records, (1, []))
    for name in filter(wanted, header):
        if header.count(name) > 1:
            rule = "there are two columns of this name"
            raise DataError(Fault(str(path), name, "", rule, "Rename or leave out one of them."))
    chunks: list[list[pa.Array]] = [[] for _ in header]
    while rows := [cells for _, cells in islice(records, _ROWS)]:
        for name, chunk, cells in zip(header, chunks, zip(*rows, strict=True), strict=True):
            values = cells if text(name) else [cell or None for cell in cells]
            chunk.append(pa.array(values, pa.string()))
    return pa.table([pa.chunked_array(chunk, pa.string()) for chunk in chunks], names=header)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row of a CSV or TSV file, the header first, with the line on which it begins.

    Tab-separated files often do not use quoting, so a quoted cell there must close on its line.
    """
    text = read_text(path)
    separator = _separator(text, "\t" if path.suffix == ".tsv" else ",")
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    lines = (found.group() for found in _LINE.finditer(text))  # a StringIO takes 4 bytes a letter
    reader = csv.reader(lines, delimiter=separator, strict=True)
    line, count = 1, 0
    try:
        for cells in reader:
            if cells and separator == "\t" and reader.line_num > line:
                raise csv.Error
            count = count or len(cells)
            if cells and len(cells) != count:
                rule = f"a row must have {count} cells, as the header has"
                move = f"Quote a cell that holds the separator {separator!r}, or correct the row."
                where, found = f"{path} line {line}", f"{len(cells)} cells"
                raise DataError(Fault(where, "", found, rule, move))
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error:
        shown = repr(text.split("\n")[line - 1][:40])
        within = " on the same line" if separator == "\t" else ""
        rule = f'a cell that begins with " must end with "{within}, with those between doubled'
        move = 'Write "So" he said as """So"" he said"; JSONL needs no such quoting.'
        raise DataError(Fault(f"{path} line {line}", "", shown, rule, move)) from None


def _separator(text: str, usual: str) -> str:
    """The separator that splits the header most; the usual one of equals."""
    header = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    counts = {mark: len(next(csv.reader([header], delimiter=mark), [])) for mark in ",;\t|"}
    return max((usual, *counts), key=lambda mark: counts[mark])


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

    def take(self, rows: npt.NDArray[np.int64]) -> "Origin":
        """The origin of some rows of the table."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def at(self, rows: Sequence[int]) -> str:
        """Name rows of the table by line number, or by row number if the file has no lines."""
        numbers = [int(row if self.rows is None else self.rows[row]) for row in rows]
        lines = _first_lines(self.path) if self.path and self.path.is_file() else ()
        word, shown = "row", [number + 1 for number in numbers[:5]]
        if max(numbers) < len(lines):
            word, shown = "line", [lines[number] for number in numbers[:5]]
        more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
        return f"{self} {word}{'s' if len(rows) > 1 else ''} {', '.join(map(str, shown))}{more}"


def _first_lines(path: Path) -> Sequence[int]:
    """The line on which each row of a text file begins; empty for files without lines."""
    if path.suffix == ".txt":
        return range(1, 2**31)
    if path.suffix == ".jsonl":
        return [line for line, _ in _objects(path)]
    return [line for line, _ in _records(path)][1:] if path.suffix in (".csv", ".tsv") else []


def file_columns(path: Path, table: pa.Table) -> tuple[str, ...]:
    """All columns of a file, including those that `table` lacks."""
    names = pq.read_schema(path).names if path.suffix == ".parquet" else table.column_names
    return tuple(names)


def value_kind(column: pa.ChunkedArray) -> pa.DataType:
    """The type of a column's values, also if it is dictionary-encoded."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def blank_sentences(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which sentences are null, empty or only white space."""
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)
