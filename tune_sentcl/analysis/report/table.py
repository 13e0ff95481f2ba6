"""Tables before any format: values, and the positions of the best ones."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Estimate:
    """A score over seeds.

    Attributes:
        mean: Times 100; NaN if there is no value.
        sd: With n - 1; NaN for one seed.
        n: The number of seeds with the score.
    """

    mean: float
    sd: float = math.nan
    n: int = 1

    @property
    def shown(self) -> str:
        """The mean as printed, which decides the best; empty if missing."""
        return "" if math.isnan(self.mean) else f"{self.mean:.2f}"

    @property
    def spread(self) -> str:
        """The sd as printed; empty if missing."""
        return "" if math.isnan(self.sd) or math.isnan(self.mean) else f"{self.sd:.2f}"


Value = str | int | float | Estimate | None


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: Its anchor in the page and its label in LaTeX.
        title: The heading.
        columns: The column headings.
        rows: The cells of each row.
        best: Row and column of each best value, counted from 0.
        note: A remark below the table.
        more: The number of rows that were left out.
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
        """Whether each column holds only numbers."""
        return tuple(
            _is_numeric([row[at] for row in self.rows]) for at in range(len(self.columns))
        )


def _is_numeric(column: Sequence[Value]) -> bool:
    found = [value for value in column if value is not None]
    return bool(found) and not any(isinstance(value, str) for value in found)


def best_of(
    rows: Sequence[Sequence[Value]], tops: Mapping[int, float]
) -> frozenset[tuple[int, int]]:
    """The cells with the highest means as printed; equal texts are equally good.

    Args:
        rows: The rows of a table.
        tops: The highest mean of each column of scores, over all rows including left-out ones.
    """
    printed = {column: Estimate(top).shown for column, top in tops.items()}
    return frozenset(
        (y, column)
        for y, row in enumerate(rows)
        for column, top in printed.items()
        if isinstance(value := row[column], Estimate) and value.shown and value.shown == top
    )


def written(value: Value, spread: str = " ± ") -> str:
    """A value as plain text, with `spread` before a standard deviation."""
    match value:
        case None:
            return ""
        case Estimate():
            return f"{value.shown}{spread}{value.spread}" if value.spread else value.shown
        case bool():
            return str(value).lower()
        case float():
            return number(value, 4)  # sampled knobs may lie close together
        case int():
            return str(value)  # no thousands separator: knobs are copied into --set
        case _:
            return value


def duration(hours: float) -> str:
    """A time in a suitable unit."""
    if hours >= 1:
        return f"{number(hours)} h"
    return f"{number(60 * hours)} min" if 60 * hours >= 1 else f"{number(3600 * hours)} s"


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
