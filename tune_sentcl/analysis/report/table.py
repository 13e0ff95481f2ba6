"""Tables before any format: headings, values and remarks."""

import math
from dataclasses import dataclass
from functools import cached_property

from tune_sentcl.results.standings import Estimate


class Hours(float):
    """A time, which is printed in a suitable unit; NaN if unknown."""


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
        spare: Left-out rows that the page shows when the reader selects them; `ids` has theirs.
        caption: The first sentence of its caption in a paper; empty if it belongs in none.
        knobs: The columns of knobs.
        marks: Of each row, with those of `spare`, `winner`, `worse` (proven) or an empty text.
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
            return number(value, 4)  # sampled knobs may lie close together
        case _:
            return str(value)  # no thousands separator: knobs are copied into --set


def time_unit(hours: float) -> tuple[str, float]:
    """The unit that suits a time, and how many of it an hour has."""
    if hours >= 1:
        return "hours", 1.0
    return ("minutes", 60.0) if 60 * hours >= 1 else ("seconds", 3600.0)


def duration(hours: float) -> str:
    """A time in a suitable unit."""
    unit, factor = time_unit(hours)
    return f"{number(factor * hours)} {'min' if unit == 'minutes' else unit[0]}"


def number(value: float, digits: int = 3) -> str:
    """A number to some significant digits; without an exponent from 0.001 to 100,000."""
    if math.isnan(value):
        return ""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def one_line(text: str) -> str:
    """Text on one line: no line break ends a row, a heading or a comment."""
    return " ".join(text.split())
