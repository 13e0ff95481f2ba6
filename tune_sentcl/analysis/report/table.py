"""Tables as a report means them, before any format: values, and which of them are the best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Estimate:
    """A score over seeds.

    Attributes:
        mean: Times 100; NaN where there is none.
        sd: n - 1 under the root; NaN for one seed.
        n: Seeds that have it.
    """

    mean: float
    sd: float = math.nan
    n: int = 1

    @property
    def shown(self) -> str:
        """The mean as it is printed, by which the best are told; empty where there is none."""
        return "" if math.isnan(self.mean) else f"{self.mean:.2f}"

    @property
    def spread(self) -> str:
        """The sd as it is printed; empty where there is none."""
        return "" if math.isnan(self.sd) or math.isnan(self.mean) else f"{self.sd:.2f}"


Value = str | int | float | Estimate | None


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: Its anchor in the page and its label in LaTeX.
        title: What it shows.
        columns: The headings.
        rows: As many values each.
        best: Row and column of the best values, from 0.
        note: What a reader must know, in a sentence; empty: nothing.
        more: Rows that were left out.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    best: frozenset[tuple[int, int]] = field(default=frozenset())
    note: str = ""
    more: int = 0

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers alone."""
        return tuple(
            _is_numeric([row[at] for row in self.rows]) for at in range(len(self.columns))
        )


def _is_numeric(column: Sequence[Value]) -> bool:
    found = [value for value in column if value is not None]
    return bool(found) and not any(isinstance(value, str) for value in found)


def best_of(
    rows: Sequence[Sequence[Value]], tops: Mapping[int, float]
) -> frozenset[tuple[int, int]]:
    """Where the highest means of columns stand; what is printed alike is equally good.

    Args:
        rows: The rows of a table.
        tops: The highest mean of each column that holds scores, of rows that are left out too.
    """
    printed = {column: Estimate(top).shown for column, top in tops.items()}
    return frozenset(
        (y, column)
        for y, row in enumerate(rows)
        for column, top in printed.items()
        if isinstance(value := row[column], Estimate) and value.shown and value.shown == top
    )


def written(value: Value, spread: str = " ± ") -> str:
    """A value as plain text.

    Args:
        value: What to write.
        spread: What stands before a standard deviation.
    """
    match value:
        case None:
            return ""
        case Estimate():
            return f"{value.shown}{spread}{value.spread}" if value.spread else value.shown
        case bool():
            return str(value).lower()
        case float():
            return number(value, 4)  # knobs of a search lie close together
        case int():
            return str(value)  # without a comma, for knobs are pasted behind --set
        case _:
            return value


def duration(hours: float) -> str:
    """A time in the unit that fits it."""
    if hours >= 1:
        return f"{number(hours)} h"
    return f"{number(60 * hours)} min" if 60 * hours >= 1 else f"{number(3600 * hours)} s"


def number(value: float, digits: int = 3) -> str:
    """A number of any size, without an exponent where that is readable.

    Args:
        value: What to write.
        digits: How many significant ones; those before the point stand all.
    """
    if math.isnan(value):
        return ""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def one_line(text: str) -> str:
    """Text in which no line break ends a row, a heading or a comment."""
    return " ".join(text.split())
