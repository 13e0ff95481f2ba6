"""Figures before any format: a Vega-Lite specification as plain data, and its data frames.

Specifications are dicts because altair would add 10 MB to the core install and a second to each
import. The HTML page draws them with the bundled `page/vega.js`; `--figures` draws them with
vl-convert, which contains the same releases of Vega.

A string `@name` in a specification stands for a value that the page sets: a colour of its light
or dark scheme, or `@score`, `@sd`, `@low`, `@high`, `@title` and `@floor` of the score that the
reader selects.
"""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import pandas as pd

Spec = dict[str, Any]

CONFIGURATIONS = "configurations"
"""The name of the data set that all figures share: one row per configuration."""


@dataclass(frozen=True, eq=False)
class Figure:
    """One figure.

    Attributes:
        name: Its anchor in the page, and the stem of its picture's file name.
        title: The heading.
        caption: How to read it, and what is left out.
        spec: Vega-Lite without data; data sets are named. Without `width`, the figure fills the
            available width.
        data: Its own data sets by name.
        height: In pixels; the page reserves this space.
    """

    name: str
    title: str
    caption: str
    spec: Spec
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    height: int = 260

    @property
    def by_target(self) -> bool:
        """Whether the figure shows the score that the reader of the page selects."""
        return '"@score"' in json.dumps(self.spec)


CHOSEN: Spec = {"name": "chosen", "value": None}
"""A parameter that the page sets: an object with the ids of chosen configurations, or null."""

BRUSH: Spec = {"name": "brush", "select": {"type": "interval"}}
"""An interval that the reader draws; every figure then highlights the configurations in it."""


def layer(
    mark: str,
    encoding: Spec,
    data: str,
    *,
    where: Sequence[Spec | str] = (),
    params: Sequence[Spec] = (),
    **style: Any,
) -> Spec:
    """A layer of marks over the rows of a named data set that pass all filters in `where`."""
    return {
        "data": {"name": data},
        "transform": [{"filter": test} for test in where],
        "params": list(params),
        "mark": {"type": mark, **style},
        "encoding": encoding,
    }


def layered(*layers: Spec, **more: Any) -> Spec:
    """A figure of layers, whose marks fade unless their configuration is chosen."""
    return {"params": [CHOSEN], **more, "layer": list(layers)}


def fading(opacity: float, *conditions: Spec) -> Spec:
    """The opacity of a configuration's mark: faint if other configurations are chosen."""
    chosen = {"test": "!chosen || chosen[datum.id]", "value": opacity}
    return {"opacity": {"condition": [*conditions, chosen], "value": 0.04}}


def quantitative(field_name: str, title: str, **more: Any) -> Spec:
    """An encoding of a numeric column."""
    return {"field": field_name, "type": "quantitative", "title": title, **more}


def nominal(field_name: str, title: str, **more: Any) -> Spec:
    """An encoding of a column of names."""
    return {"field": field_name, "type": "nominal", "title": title, **more}


def tooltips(fields: Mapping[str, str]) -> list[Spec]:
    """The tooltip of a mark: columns and their titles, in this order."""
    return [{"field": name, "title": title} for name, title in fields.items()]


LINES: Spec = {"labelExpr": r"split(datum.label, '\n')"}
"""Options of an axis or legend whose labels were broken into lines by `in_lines`."""


def in_lines(label: str, width: int) -> str:
    """A label in lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(label, width))


def slug(title: str) -> str:
    """A title as a part of a file name."""
    return title.lower().replace(":", "-").replace(" ", "-")


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Round numbers to five digits, which halves the bytes without a visible difference."""
    decimals = frame.select_dtypes("float")
    return frame.assign(**decimals.map(lambda value: float(f"{value:.5g}")))


def columns_of(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns as JSON values; missing values become None."""
    return frame.astype(object).where(frame.notna(), None).to_dict("list")  # type: ignore[return-value]


def page_file(name: str) -> str:
    """The text of a file of the page."""
    folder = resources.files("tune_sentcl.analysis.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def themes() -> dict[str, Spec]:
    """For the schemes `light` and `dark`, the Vega-Lite `config` and a colour for each `@name`."""
    file = json.loads(page_file("themes.json"))
    return {
        scheme: {"config": filled_in(file["config"], colours), "colours": colours}
        for scheme, colours in file["colours"].items()
    }


def filled_in(spec: Spec, values: Mapping[str, Any]) -> Spec:
    """A specification with a value for each `@name`; other names stay as they are."""

    def value(name: re.Match[str]) -> str:
        return json.dumps(values[name[1]]) if name[1] in values else name[0]

    found: Spec = json.loads(re.sub(r'"@(\w+)"', value, json.dumps(spec)))
    return found
