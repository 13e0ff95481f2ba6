"""Text files as lines, decoded strictly.

`str.splitlines` is never used: in Latin-1 text it also splits at byte 0x85, which turns one row of
a corpus into two.
"""

from pathlib import Path
from typing import Literal

from tune_sentcl.errors import DataError, Fault

Encoding = Literal["utf-8", "latin-1"]


def read_lines(path: Path, encoding: Encoding) -> list[str]:
    r"""Read a text file as rows.

    Rows end at `\n` alone. One final newline and the `\r` of CRLF ends are dropped; every other
    empty line is a row. A UTF-8 byte order mark is no text and is dropped too.

    Args:
        path: The file.
        encoding: How its bytes are decoded; a byte that does not fit is an error.

    Returns:
        The rows in file order, at least one.

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
