"""Tables before any format: values, and the positions of the best ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd


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


class Hours(float):
    """A time, which is printed in a suitable unit; NaN if unknown."""


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
        near: Row and column of each value that is not distinguishable from the best.
        ids: The configuration of each row, if rows are configurations.
        spare: Left-out rows that the page shows when the reader selects them; `ids` has theirs.
        caption: The first sentence of its caption in a paper; empty if it belongs in none.
        knobs: The columns of knobs.
        scores: The columns of scores.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    best: frozenset[tuple[int, int]] = field(default=frozenset())
    note: str = ""
    more: int = 0
    near: frozenset[tuple[int, int]] = field(default=frozenset())
    ids: tuple[str, ...] = ()
    spare: tuple[tuple[Value, ...], ...] = ()
    caption: str = ""
    knobs: range = range(0)
    scores: range = range(0)

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column holds only numbers."""
        return tuple(
            _is_numeric([row[at] for row in self.rows]) for at in range(len(self.columns))
        )


def _is_numeric(column: Sequence[Value]) -> bool:
    found = [value for value in column if value is not None]
    return bool(found) and not any(isinstance(value, str) for value in found)


def written(value: Value, spread: str = " ± ") -> str:
    """A value as plain text, with `spread` before a standard deviation."""
    match value:
        case None:
            return ""
        case Estimate():
            return f"{value.shown}{spread}{value.spread}" if value.spread else value.shown
        case Hours():
            return "" if math.isnan(value) else duration(value)
        case bool():
            return str(value).lower()
        case float():
            return number(value, 4)  # sampled knobs may lie close together
        case int():
            return str(value)  # no thousands separator: knobs are copied into --set
        case _:
            return value


def plain(value: Any) -> Value:
    """A knob's value as a plain Python value; None if it is missing."""
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
    if value is None or value is pd.NA or value != value:
        return None
    return value  # type: ignore[no-any-return]


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
