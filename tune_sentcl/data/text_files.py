"""Read text files as lines, and JSONL, CSV and TSV as rows with their line numbers."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tune_sentcl.errors import DataError, Fault

Encoding = Literal["utf-8", "latin-1"]

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path, encoding: Encoding = "utf-8") -> str:
    """Read a text file that is not empty; a byte order mark (UTF-8, UTF-16) sets the encoding.

    Raises:
        DataError: The file is missing, a folder, unreadable, empty, or not in this encoding.
    """
    raw = _read_bytes(path)
    if not raw:
        raise DataError(Fault(str(path), rule="the file is empty", move="Copy the file again."))
    if encoding == "utf-8" and b"\0" in raw[:2]:
        rule, move = "UTF-16 must begin with a byte order mark", "Convert the file to UTF-8."
        raise DataError(Fault(str(path), value=repr(raw[:4]), rule=rule, move=move))
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        rule, move = "the file is UTF-32 text", "Convert the file to UTF-8."
        raise DataError(Fault(str(path), value=repr(raw[:4]), rule=rule, move=move))
    marked = encoding == "utf-8" and raw.startswith(_UTF_16)
    name = "utf-16" if marked else encoding
    try:
        text = raw.decode(name)
    except UnicodeDecodeError as error:
        line = raw[: error.start].decode(name, "ignore").count("\n") + 1
        value = f"byte 0x{raw[error.start]:02x} at offset {error.start}"
        rule = f"the file must be {name} text"
        move = f"Convert the file to {name}, or copy it again."
        raise DataError(Fault(f"{path} line {line}", value=value, rule=rule, move=move)) from None
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
    raise DataError(Fault(str(path), rule=rule, move=move))


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object of a JSONL file with its line number.

    Raises:
        DataError: A line is not an object, or has a key twice.
    """
    for line, text in enumerate(read_lines(path, "utf-8"), 1):
        if text.strip():
            try:
                row = json.loads(text, object_pairs_hook=_distinct)
            except (ValueError, RecursionError) as error:
                row = error
            if not isinstance(row, dict):
                rule = "must be a JSON object"
                rule += f" ({row})" if isinstance(row, Exception) else ""
                fault = Fault(f"{path} line {line}", rule=rule, move="Write one object per line.")
                raise DataError(fault)
            yield line, row


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice in the object")
    return dict(pairs)


_STATED = re.compile(r'"?sep=([,;\t|])"?(?=[\r\n])', re.IGNORECASE)  # matches Excel's `sep=;`
_HEAD = 100_000  # the header must lie within this many characters


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV or TSV file with the line on which it begins, the header first.

    In a tab-separated file, a quoted cell ends on its line: such files often do not use quotes,
    and an unpaired quote would swallow rows.

    Raises:
        DataError: A quoted cell does not end, or a row has another number of cells.
    """
    text, mark = _separated(path, read_text(path))
    if not text.strip("\r\n"):
        raise DataError(
            Fault(str(path), rule="the file has no header", move="Write the file again.")
        )
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    line, width = 1, 0
    try:
        for row in reader:
            if row and mark == "\t" and reader.line_num > line:
                raise csv.Error("a quoted cell continues on the next line")
            if row and len(row) != (width or len(row)):
                rule = f"a row must have {width} cells, as the header has"
                move = f"Quote a cell that holds the separator {mark!r}, or correct the row."
                raise DataError(
                    Fault(f"{path} line {line}", value=f"{len(row)} cells", rule=rule, move=move)
                )
            if row:
                yield line, row
            line, width = reader.line_num + 1, width or len(row)
    except csv.Error as error:
        within = " on the same line" if mark == "\t" else ""
        rule = f'a cell that begins with " must end with "{within}; double each " between'
        move = 'Write "So" he said as """So"" he said"; JSONL needs no such quoting.'
        raise DataError(
            Fault(f"{path} line {line}", value=str(error), rule=rule, move=move)
        ) from None


def _separated(path: Path, text: str) -> tuple[str, str]:
    """The text of a table, and its separator.

    Excel's first line names the separator. Else it is a mark that splits the header and the first
    row into equally many cells, first of all the suffix's own. Else it is the header's most
    frequent mark.
    """
    if stated := _STATED.match(text):
        # The line break stays, so that later lines keep their numbers.
        return text[stated.end() :], stated[1]
    lines = re.split(r"[\r\n]+", re.sub('"[^"]*"', "", text[:_HEAD]).lstrip("\r\n"), maxsplit=2)
    counts = {mark: [line.count(mark) for line in lines[:2]] for mark in ",;\t|"}
    usual = "\t" if path.suffix == ".tsv" else ","

    def fits(mark: str) -> tuple[bool, bool, int]:
        agrees = 0 < counts[mark][0] == counts[mark][-1]
        return agrees and mark == usual, agrees, counts[mark][0]

    return text, max((usual, *counts), key=fits)
