"""Frames as plain Python: a row at a time is what pandas is slow at."""

from typing import Any

import pandas as pd


def plain(column: "pd.Series[Any]") -> list[Any]:
    """A column's values, None for what is missing."""
    return column.astype(object).where(column.notna(), None).tolist()


def lines_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows by the names of the columns, what is missing left out."""
    columns = {str(name): plain(frame[name]) for name in frame}
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in zip(*columns.values(), strict=True)
    ]
