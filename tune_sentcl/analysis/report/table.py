"""Tables: headings, values and remarks, independent of the format."""

import math
from dataclasses import dataclass
from functools import cached_property

from tune_sentcl.results.standings import Estimate


class Hours(float):
    """A time in hours, which is printed in a suitable unit; NaN if unknown."""


Value = str | int | float | Estimate | None
Row = tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: Its anchor in the page and its label in LaTeX.
        title: The heading.
        columns: The column headings.
        rows: The cells of each row.
        note: A remark below the table.
        more: The number of rows that were left out.
        ids: The configuration of each row, if rows are configurations.
        spare: Left-out rows that the page shows when the reader selects them; `ids` also lists
            their configurations.
        caption: The first sentence of its caption in LaTeX; empty for a table that LaTeX leaves
            out.
        knobs: The columns of hyperparameters.
        marks: For each row of `rows` and `spare`: `winner`, `worse` (proven), or an empty text.
    """

    name: str
    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    note: str = ""
    more: int = 0
    ids: tuple[str, ...] = ()
    spare: tuple[Row, ...] = ()
    caption: str = ""
    knobs: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds only numbers."""
        columns = ([row[x] for row in self.rows] for x in range(len(self.columns)))
        kinds = ({type(value) for value in column} - {type(None)} for column in columns)
        return tuple(bool(kind) and str not in kind for kind in kinds)

    @cached_property
    def scores(self) -> list[int]:
        """The columns of scores."""
        columns = range(len(self.columns))
        return [x for x in columns if any(isinstance(row[x], Estimate) for row in self.rows)]


def written(value: Value) -> str:
    """A value as plain text."""
    match value:
        case None:
            return ""
        case Estimate():
            return f"{value.shown} ± {value.spread}" if value.spread else value.shown
        case Hours():
            return "" if math.isnan(value) else duration(value)
        case bool():
            return str(value).lower()
        case float():
            # Sampled values may lie close together, so they are shown with four digits.
            return "" if math.isnan(value) else f"{value:.4g}"
        case _:
            # Users copy values into --set, which reads no thousands separators.
            return str(value)


def time_unit(hours: float) -> tuple[str, float]:
    """The unit that suits a time, and the number of such units in an hour."""
    if hours >= 1:
        return "hours", 1.0
    return ("minutes", 60.0) if 60 * hours >= 1 else ("seconds", 3600.0)


def duration(hours: float) -> str:
    """A time in a suitable unit."""
    unit, factor = time_unit(hours)
    value = factor * hours
    text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return f"{text} {'min' if unit == 'minutes' else unit[0]}"


def one_line(text: str) -> str:
    """Text on one line; a line break would end a row, heading or comment."""
    return " ".join(text.split())
