"""Figures as a report means them: Vega-Lite as plain data, and the columns that it draws.

Specifications are plain dicts and not altair's objects: altair would cost the core install 10 MB
and a second at each import, for a dozen specifications that are written once. The page compiles
and draws them by the bundle beside this file, `--figures` by vl-convert, which holds the same
releases of Vega (`tests/analysis/test_report_figures.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

Spec = dict[str, Any]

CONFIGURATIONS = "configurations"
"""The name of the data set that all figures share: one row a configuration."""

SCORE, SPREAD, LOW, HIGH = "score", "score_sd", "score_low", "score_high"
"""The columns of the score that a figure shows, where a reader chooses which that is."""


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure.

    Attributes:
        name: Its anchor in the page, and the name of its picture's file.
        title: What it shows.
        caption: How to read it, and what is left out.
        spec: Vega-Lite without data; data sets by name. `width` is missing where it takes what
            there is.
        shared: The columns of `CONFIGURATIONS` that it draws.
        data: Its own data sets by name.
        by_target: Whether `SCORE` and its kin stand for the score that the reader chooses.
        wide: Whether it wants a whole line of the page.
        height: In pixels, so that a page keeps room for it.
    """

    name: str
    title: str
    caption: str
    spec: Spec
    shared: tuple[str, ...] = ()
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    by_target: bool = False
    wide: bool = False
    height: int = 260


def quantitative(field_name: str, title: str, **more: Any) -> Spec:
    """An encoding by a number."""
    return {"field": field_name, "type": "quantitative", "title": title, **more}


def nominal(field_name: str, title: str, **more: Any) -> Spec:
    """An encoding by a name."""
    return {"field": field_name, "type": "nominal", "title": title, **more}


def tooltips(fields: Mapping[str, str]) -> list[Spec]:
    """What a mark says when it is pointed at: columns and their titles, in this order."""
    return [{"field": name, "title": title} for name, title in fields.items()]


def rounded(frame: pd.DataFrame, digits: int = 4) -> pd.DataFrame:
    """Numbers to so many significant digits: more than a pixel can show, half the bytes."""
    found = frame.copy()
    for name in found.columns:
        if pd.api.types.is_float_dtype(found[name]):
            found[name] = [significant(value, digits) for value in found[name].tolist()]
    return found


def significant(value: float, digits: int) -> float:
    """A number of so many significant digits."""
    return float(f"{value:.{digits}g}") if value == value else value


def columns_of(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns as JSON has them: None where there is no value."""
    found: dict[str, list[Any]] = {}
    for name in names:
        column = frame[name].astype(object)
        found[name] = column.where(frame[name].notna(), None).tolist()
    return found
