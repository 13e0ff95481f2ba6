"""Text files as lines, and as tables: JSONL, CSV and TSV."""

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json

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

Which = Callable[[Sequence[str]], Mapping[str, bool]]
"""The columns to read, of all names of a file, and whether they hold text."""


def json_table(path: Path, which: Which) -> pa.Table:
    """Read a JSONL file; see `read_table`."""
    found = _arrow_json(path, which)
    if found is not None:
        return found
    records, columns = list(json_objects(path)), {}
    names = list(dict.fromkeys(name for _, row in records for name in row))
    texts = which(names)
    for name in names:
        values = [row.get(name) if name in texts else None for _, row in records]
        try:
            columns[name] = _json_column(values, text=texts.get(name, False))
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


def _arrow_json(path: Path, which: Which) -> pa.Table | None:
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
    kinds, texts = (pa.string(), pa.list_(pa.string())), which(table.column_names)
    types = {name: table[name].type for name in texts}
    if any(
        types[name] not in kinds if text else pa.types.is_temporal(types[name])
        for name, text in texts.items()
    ):
        return None
    empty = pa.nulls(table.num_rows)
    return pa.table({name: table[name] if name in texts else empty for name in table.column_names})


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


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
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
_NEWLINE = re.compile(rb"\r\n?|\n")
_STATED = re.compile(rb'"?sep=([,;\t|])"?(?=[\r\n])', re.IGNORECASE)  # Excel's first line
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_HEAD = 100_000  # bytes that hold the header
# Rows of up to 4 MB; threads would not tell the number of a row.
_READ = {"block_size": 2**22, "autogenerate_column_names": True, "use_threads": False}


def csv_table(path: Path, which: Which) -> pa.Table:
    """Read a CSV or TSV file; see `read_table`."""
    raw, mark = _csv_parts(path)
    names = [f"f{number}" for number in range(raw[:_HEAD].count(mark.encode()) + 1)]
    _require_quotes(path, raw, mark)
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(raw),
            pa.csv.ReadOptions(**_READ),
            pa.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except READ_ERRORS as error:
        read_text(path)  # names the line of what is not UTF-8
        where, found = str(path), ""
        rule, move = f"the file cannot be read as CSV ({first_line(error)})", "Write it again."
        if ragged := _RAGGED.search(str(error)):
            line, found = csv_lines(path)[int(ragged[1]) - 1], f"{ragged[3]} cells"
            where = f"{path} line {line}"
            rule = f"a row must have {ragged[2]} cells, as the header has"
            move = f"Quote a cell that holds the separator {mark!r}, or correct the row."
        raise DataError(Fault(where, "", found, rule, move)) from None
    header = [column[0].as_py() for column in table.columns]
    columns, texts = [column[1:] for column in table.columns], which(header)
    for number, column in enumerate(columns):
        if not texts.get(header[number], False):
            columns[number] = pc.if_else(pc.equal(column, ""), None, column)
    return pa.table(columns, names=header)


def _csv_parts(path: Path) -> tuple[bytes, str]:
    """A file in UTF-8, and its separator.

    Excel states it; or the suffix's own splits the header as it does the first row; or it is what
    splits the header most.
    """
    raw = _read_bytes(path).removeprefix(codecs.BOM_UTF8)
    if not raw or raw.startswith(_UTF_16) or b"\0" in raw[:2]:
        raw = read_text(path).encode()
    if stated := _STATED.match(raw):
        return raw[stated.end() :], stated[1].decode()  # an empty line is left: lines count
    lines = re.split(rb"[\r\n]+", re.sub(b'"[^"]*"', b"", raw[:_HEAD]).lstrip(b"\r\n"), maxsplit=2)
    counts = {mark: [line.count(mark.encode()) for line in lines[:2]] for mark in ",;\t|"}
    usual = "\t" if path.suffix == ".tsv" else ","
    own = counts[usual][0] and counts[usual][0] == counts[usual][-1]
    return raw, usual if own else max((usual, *counts), key=lambda mark: counts[mark][0])


def _quotes(mark: str) -> bytes:
    """A quote within an unquoted cell, or a quoted cell; Arrow lets text follow the latter.

    Tab-separated files often do not use quoting, so a quoted cell there must close on its line.
    """
    other, within = f"[^{mark}\r\n]", '[^"\r\n]' if mark == "\t" else '[^"]'
    quoted = f'(?<!{other})"{within}*+(?:""{within}*+)*+"(?!{other})'
    return f'(?:(?<={other})"|{quoted})'.encode()


def _require_quotes(path: Path, raw: bytes, mark: str) -> None:
    sound = re.match(b'(?:[^"]++|%s)*+' % _quotes(mark), raw)
    end = sound.end() if sound else 0
    if end < len(raw):
        line = len(_NEWLINE.findall(raw, 0, end)) + 1
        shown = repr(raw[end : end + 40].decode(errors="ignore"))
        within = " on the same line" if mark == "\t" else ""
        rule = f'a cell that begins with " must end with "{within}, with those between doubled'
        move = 'Write "So" he said as """So"" he said"; JSONL needs no such quoting.'
        raise DataError(Fault(f"{path} line {line}", "", shown, rule, move))


def csv_lines(path: Path) -> list[int]:
    """The line on which each row begins, the header first."""
    raw, mark = _csv_parts(path)
    found, line = [], 1
    for row in re.finditer(rb'(?:[^"\r\n]++|%s)*+(?:\r\n?|\n|\Z)' % _quotes(mark), raw):
        if row[0].strip(b"\r\n"):
            found.append(line)
        line += len(_NEWLINE.findall(row[0]))
    return found
