"""Figures before any format: a Vega-Lite specification as plain data, and its columns.

Specifications are dicts because altair would add 10 MB to the core install and a second to each
import. The HTML page draws them with the bundled `page/vega.js`; `--figures` draws them with
vl-convert, which contains the same releases of Vega.
"""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

Spec = dict[str, Any]

CONFIGURATIONS = "configurations"
"""The name of the data set that all figures share: one row per configuration."""

SCORE, SPREAD, LOW, HIGH = "score", "score_sd", "score_low", "score_high"
"""The columns of the selected score, in figures where the reader selects the score."""


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure.

    Attributes:
        name: Its anchor in the page, and the stem of its picture's file name.
        title: The heading.
        caption: How to read it, and what is left out.
        spec: Vega-Lite without data; data sets are named. Without `width`, the figure fills the
            available width.
        shared: The columns of `CONFIGURATIONS` that it draws.
        data: Its own data sets by name; with `by_target` they belong to the first score alone.
        by_target: Whether the reader selects the score in `SCORE`, `SPREAD`, `LOW` and `HIGH`.
        wide: Whether it takes the page's full width.
        height: In pixels; the page reserves this space.
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


CHOSEN: Spec = {"name": "chosen", "value": None}
"""A parameter that the page sets: an object with the ids of the chosen configurations, or null."""

BRUSH: Spec = {"name": "brush", "select": {"type": "interval"}}
"""A range that the reader draws; the page chooses the configurations in it in every figure."""


def fading(opacity: float, *conditions: Spec) -> Spec:
    """The opacity of a mark that stands for a configuration: faint unless that is chosen."""
    chosen = {"test": "!chosen || chosen[datum.id]", "value": opacity}
    return {"opacity": {"condition": [*conditions, chosen], "value": 0.04}}


def quantitative(field_name: str, title: str, **more: Any) -> Spec:
    """An encoding of a numeric column."""
    return {"field": field_name, "type": "quantitative", "title": title, **more}


def nominal(field_name: str, title: str, **more: Any) -> Spec:
    """An encoding of a column of names."""
    return {"field": field_name, "type": "nominal", "title": title, **more}


LINES: Spec = {"labelExpr": r"split(datum.label, '\n')"}
"""An axis or a legend whose labels have several lines, of `in_lines`."""


def in_lines(label: str, width: int) -> str:
    """A label in lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(label, width))


def tooltips(fields: Mapping[str, str]) -> list[Spec]:
    """The tooltip of a mark: columns and their titles, in this order."""
    return [{"field": name, "title": title} for name, title in fields.items()]


def bars(name: str, title: str, caption: str, frame: pd.DataFrame, x: Spec) -> Figure:
    """Horizontal bars: for each `place` of a frame one bar per `kind`, in the frame's order."""
    places, kinds = (frame[column].drop_duplicates().tolist() for column in ("place", "kind"))
    axis = {"ticks": False, "domain": False, "labelLimit": 140}
    legend = {"orient": "top", "title": None}
    encoding = {
        "y": nominal("place", "", sort=places, axis=axis),
        "yOffset": {"field": "kind", "sort": kinds},
        "x": x,
        "color": nominal("kind", "", legend=legend, scale={"domain": kinds}),
        "tooltip": tooltips({"place": "of", "kind": "kind", x["field"]: x["title"]}),
    }
    height = 18 * len(places) * len(kinds)
    mark = {"type": "bar", "cornerRadiusEnd": 2}
    spec = {"data": {"name": "bars"}, "height": height, "mark": mark, "encoding": encoding}
    return Figure(name, title, caption, spec, data={"bars": frame}, height=80 + height)


def rounded(frame: pd.DataFrame, digits: int = 4) -> pd.DataFrame:
    """Round numbers to significant digits: half the bytes, with no visible difference."""
    found = frame.copy()
    for name in found.columns:
        if pd.api.types.is_float_dtype(found[name]):
            found[name] = [significant(value, digits) for value in found[name].tolist()]
    return found


def significant(value: float, digits: int) -> float:
    """A number rounded to significant digits; NaN stays."""
    return float(f"{value:.{digits}g}") if value == value else value


def columns_of(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns as JSON values, None for missing ones."""
    found: dict[str, list[Any]] = {}
    for name in names:
        column = frame[name].astype(object)
        found[name] = column.where(frame[name].notna(), None).tolist()
    return found


Scheme = Literal["light", "dark"]

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
_CATEGORIES: dict[Scheme, tuple[str, ...]] = {
    "light": (
        *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
        *("#e69f00", "#56b4e9", "#7a7a00", "#333333"),
    ),
    "dark": (
        *("#56b4e9", "#e69f00", "#2fc49a", "#e39cc4"),
        *("#f0e442", "#ff8b4d", "#8ab0ff", "#dddddd"),
    ),
}
_RAMP: dict[Scheme, list[str]] = {
    "light": ["#dbe7f1", "#7fb2d8", "#0b4f86", "#062f52"],
    "dark": ["#24384a", "#2f6ea3", "#7fc4ff", "#e3f3ff"],
}
_COLOURS = {
    "ink": ("#1c2430", "#e6e9ee"),
    "soft": ("#566070", "#a3adba"),
    "line": ("#e3e7ec", "#2c343f"),
    "pale": ("#b4bdc8", "#5a6675"),
    "accent": ("#d55e00", "#ffa057"),
    "paper": ("#ffffff", "#14181e"),
}
"""Each colour in the light and in the dark scheme."""


def colours(scheme: Scheme) -> dict[str, str]:
    """The values of `@ink`, `@soft`, `@pale`, `@accent` and `@paper` in a specification."""
    return {name: pair[scheme == "dark"] for name, pair in _COLOURS.items()}


def themed(spec: Spec, scheme: Scheme) -> Spec:
    """A specification with the names of colours replaced by a scheme's colours."""
    own = colours(scheme)
    found: Spec = json.loads(
        re.sub(r'"@(\w+)"', lambda name: f'"{own[name[1]]}"', json.dumps(spec))
    )
    return {**found, "config": config(scheme)}


def config(scheme: Scheme) -> dict[str, Any]:
    """The Vega-Lite `config` of every figure."""
    ink, soft, line, pale, *_ = colours(scheme).values()
    first = _CATEGORIES[scheme][0]
    return {
        "background": None,
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": soft,
            "titleColor": ink,
            "titleFontWeight": 500,
            "titleFontSize": 12,
            "labelFontSize": 11,
            "titlePadding": 8,
            "gridColor": line,
            "domainColor": pale,
            "tickColor": pale,
            "labelOverlap": True,
        },
        "axisX": {"grid": False},
        "legend": {
            "labelColor": ink,
            "titleColor": soft,
            "titleFontWeight": 500,
            "labelFontSize": 11.5,
            "titleFontSize": 11.5,
            "symbolOpacity": 1,
            "symbolStrokeWidth": 2,
        },
        "range": {"category": _CATEGORIES[scheme], "ramp": _RAMP[scheme]},
        "mark": {"color": first},
        "rule": {"color": first},
        "text": {"color": ink, "fontSize": 11},
    }
