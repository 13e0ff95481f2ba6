"""Tables on stdout for people, and the same rows as JSON for programs."""

import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tune_sentcl.cli.exits import json_stream

Row = Mapping[str, Any]

_RULED = Box("    \n    \n ─  \n" + "    \n" * 5)  # draws one line, below the header
_ENDLESS = 100_000  # width in columns if stdout is not a terminal
_GAP = 2
_PROSE = 80  # width in columns at which sentences are wrapped
_ID = re.compile(r"[0-9a-f]{16}")
_DIGITS = 8  # the fewest digits to which an id is shortened
_WORD = 24  # a word of at most this many columns is never split
_LETTERS = re.compile(r"[^\W\d_]{2}")


@dataclass(frozen=True)
class Layout:
    """The layout of a table.

    Attributes:
        titles: Short titles by column key; the default title is the key.
        legend: By column key, a line above the table that explains the short title.
        knobs: Columns that hold hyperparameters.
        constant: Columns that are left out if they are empty or if all rows have the same value;
            that value is then printed once above the table.
        of: A plural noun for the rows.
        drop_first: Columns to leave out first if the terminal is too narrow; then columns are left
            out from the right.
        full_option: The option that prints all columns.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    legend: Mapping[str, str] = field(default_factory=dict)
    knobs: Collection[str] = ()
    constant: Collection[str] = ()
    of: str = "rows"
    drop_first: Sequence[str] = ()
    full_option: str = "--json"


def json_text(rows: Sequence[Row]) -> str:
    """Rows as one JSON array; numbers that JSON lacks (NaN, infinity) become null."""
    text = json.dumps([dict(row) for row in rows], default=_plain)
    finite = json.loads(text, parse_constant=lambda _: None)
    return json.dumps(finite, indent=1, ensure_ascii=False) + "\n"


def print_json(rows: Sequence[Row]) -> None:
    """Print rows as one JSON array."""
    json_stream().write(json_text(rows))


def print_table(rows: Sequence[Row], title: str = "", layout: Layout | None = None) -> None:
    """Print a table with one column per key of the first row; without rows print nothing.

    The width is that of the terminal or of the variable COLUMNS. In a pipe, lines are as long as
    needed and have no control codes.
    """
    width, bold = output_width()
    for text in table_lines(rows, width, title, layout, bold=bold):
        line(text)


def output_width() -> tuple[int, bool]:
    """The width of stdout in columns (almost endless in a pipe), and whether it is a terminal."""
    terminal = sys.stdout.isatty()
    if terminal or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns, terminal
    return _ENDLESS, False


def table_lines(
    rows: Sequence[Row],
    width: int,
    title: str = "",
    layout: Layout | None = None,
    *,
    bold: bool = False,
) -> list[str]:
    """The lines of a table, none wider than `width` characters.

    An id is shortened to its first eight digits, or more if these do not distinguish the ids of a
    column. Ids and numbers are never split; long texts are wrapped at words. Columns that do not
    fit are left out and named below the table. `bold` prints titles with a terminal's control
    codes.
    """
    if not rows:
        return []
    layout = layout or Layout()
    columns = {key: _Column.of(key, rows, layout) for key in rows[0]}
    same = [key for key in layout.constant if key in columns and columns[key].is_constant]
    values = {key: columns.pop(key).cells[0] for key in same}
    same_values = [f"{key} {value}" for key, value in values.items() if value]
    below = []
    if left_out := _leave_out(columns, width, layout.drop_first):
        count = f"{len(left_out)} column{'s' if len(left_out) > 1 else ''}"
        named = f"{count} left out at width {width}: {', '.join(left_out)}"
        below = [f"{named}; a wider terminal or {layout.full_option} shows them"]
    above = [title, *(text for key, text in layout.legend.items() if key in columns)]
    if same_values:
        above.append(f"all {len(rows)} {layout.of} have {', '.join(same_values)}")
    drawn = _drawn(list(columns.values()), width, bold=bold)
    return [*_wrapped(above, width), *drawn, *_wrapped(below, width)]


@dataclass
class _Column:
    """One column of a printed table.

    Attributes:
        title: Its heading.
        cells: The texts of its cells.
        is_number: Whether its values are numbers.
        least: The least width at which no number, id or word is split.
        wraps: Whether it may be narrower than its longest text.
    """

    title: str
    cells: list[str]
    is_number: bool
    least: int
    wraps: bool

    @classmethod
    def of(cls, key: str, rows: Sequence[Row], layout: Layout) -> "_Column":
        values = [row[key] for row in rows]
        show = knob_cell if key in layout.knobs else cell
        title, cells = layout.titles.get(key, key), _short_ids([show(value) for value in values])
        is_number = all(isinstance(value, int | float) or value is None for value in values)
        least = widest = max(map(cell_len, (title, *cells)))
        if any(map(_LETTERS.search, cells)):
            parts = ([text] if cell_len(text) <= _WORD else text.split() for text in cells)
            words = (word for part in parts for word in part)
            least = max(cell_len(title), *(min(cell_len(word), _WORD) for word in words))
        return cls(title, cells, is_number, least, wraps=least < widest)

    @property
    def is_constant(self) -> bool:
        return not any(self.cells) or (len(self.cells) > 1 and len(set(self.cells)) == 1)


def _short_ids(cells: list[str]) -> list[str]:
    """Shorten ids to their shortest distinct beginnings; leave other cells as they are."""
    ids = {text for text in cells if text}
    if not all(map(_ID.fullmatch, ids)):
        return cells
    digits = next(n for n in range(_DIGITS, 17) if len({text[:n] for text in ids}) == len(ids))
    return [text[:digits] for text in cells]


def _leave_out(columns: dict[str, _Column], width: int, spare: Sequence[str]) -> list[str]:
    """Remove columns until the others fit, and return their titles."""
    others = list(columns)[1:]
    order = dict.fromkeys((*spare, *reversed(others)))
    left_out = []
    for key in (key for key in order if key in others):
        if sum(column.least + _GAP for column in columns.values()) - _GAP <= width:
            break
        left_out.append(columns.pop(key).title)
    return left_out


def _drawn(columns: Sequence[_Column], width: int, *, bold: bool) -> list[str]:
    table = Table(box=_RULED, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(
            Text(column.title, "bold"),
            justify="right" if column.is_number else "left",
            overflow="fold",  # paths may differ only at their end, which "ellipsis" would cut off
            no_wrap=not column.wraps,
        )
    for texts in zip(*(column.cells for column in columns), strict=True):
        # `Text` keeps rich from reading brackets in a value as markup.
        table.add_row(*map(Text, texts))
    out = StringIO()
    Console(file=out, width=width, force_terminal=bold, no_color=True).print(table)
    return [text.rstrip() for text in out.getvalue().splitlines()]


def wrapped(text: str, indent: str = "") -> None:
    """Print a sentence in lines of at most 80 columns; all lines but the first are indented."""
    for part in textwrap.wrap(text, _PROSE, subsequent_indent=indent, break_on_hyphens=False):
        line(part)


def _wrapped(texts: Sequence[str], width: int) -> list[str]:
    return [part for text in texts for part in textwrap.wrap(text, width, break_on_hyphens=False)]


def line(text: str) -> None:
    """Write a line to stdout."""
    sys.stdout.write(f"{text}\n")


def spread(mean: Any, sd: Any) -> str:
    """Format a mean, with the standard deviation if there is one."""
    return " ± ".join(f"{value:.2f}" for value in (mean, sd) if cell(value))


def cell(value: Any) -> str:
    """Format a value; a missing value becomes an empty text."""
    if hasattr(value, "tolist"):
        # This converts arrays and scalars of numpy.
        return cell(value.tolist())
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return str(value)


def knob_cell(value: Any) -> str:
    """Format a value with four digits, because a search's values lie close together."""
    number = isinstance(value, float) and not math.isnan(value)
    return f"{value:.4g}" if number else cell(value)


def _plain(value: Any) -> Any:
    """A value that `json` knows, for one that it does not know."""
    if hasattr(value, "tolist"):
        # This converts arrays and scalars of numpy.
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)
