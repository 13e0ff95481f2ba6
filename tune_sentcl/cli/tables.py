"""Tables for people on stdout, and the same rows as JSON or CSV for programs."""

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Row = Mapping[str, Any]


def print_json(rows: Sequence[Row]) -> None:
    """Write one JSON array; what is no number in JSON (NaN) becomes null."""
    json.dump([_plain(dict(row)) for row in rows], sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(rows: Sequence[Row], title: str = "", knobs: Collection[str] = ()) -> None:
    """Write a table with one column a key of the first row.

    Where stdout is no terminal, lines are as long as they need to be, so that nothing is cut off.

    Args:
        rows: What to write.
        title: Stands above it.
        knobs: The columns that hold knobs.
    """
    if not rows:
        return
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for key in rows[0]:
        numeric = all(isinstance(row[key], int | float) or row[key] is None for row in rows)
        table.add_column(escape(key), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # A value may hold brackets, which rich would take for its markup.
        shown = (knob_cell(row[key]) if key in knobs else cell(row[key]) for key in rows[0])
        table.add_row(*map(escape, shown))
    console = Console()
    width = console.width if console.is_terminal else 200
    Console(width=width, highlight=False).print(table)


def line(text: str) -> None:
    """Write a line to stdout."""
    sys.stdout.write(f"{text}\n")


def cell(value: Any) -> str:
    """A value as a table shows it; nothing for what has no value."""
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
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
    """A knob's value as a table shows it; those of a search lie close together."""
    number = isinstance(value, float) and not math.isnan(value)
    return f"{value:.4g}" if number else cell(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return _plain(value.tolist())
    if isinstance(value, str | int | bool) or value is None:
        return value
    return str(value)
