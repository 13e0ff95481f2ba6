"""A report as one self-contained HTML file that needs no network."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata, resources
from typing import Any, get_args

import jinja2
from markupsafe import Markup

from tune_sentcl.analysis.report.figure import (
    CONFIGURATIONS,
    Figure,
    Scheme,
    colours,
    columns_of,
    config,
)
from tune_sentcl.analysis.report.points import columns_by_target
from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.table import Estimate, Value, written

VEGA = "6.2, Vega-Lite 6.4"
"""The releases in `page/vega.js`."""


def html(report: Report) -> str:
    """Render the page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FunctionLoader(_file)
    )
    return environment.get_template("report.html").render(
        report=report,
        version=metadata.version("tune-sentcl"),
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        vega=VEGA,
        css=Markup(_file("report.css")),
        js=Markup(_file("report.js")),
        vega_js=Markup(_file("vega.js")),
        data=Markup(_embedded(_data(report))),
        main=lambda value: value.shown if isinstance(value, Estimate) else written(value),
        spread=lambda value: value.spread if isinstance(value, Estimate) else "",
        sort_key=_sort_key,
    )


def _file(name: str) -> str:
    folder = resources.files("tune_sentcl.analysis.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _data(report: Report) -> dict[str, Any]:
    points, figures = report.points, list(report.figures)
    targets = points.subject.targets
    by_target = {
        name for index in range(len(targets)) for name in columns_by_target(index).values()
    }
    wanted = {name for figure in figures for name in figure.shared}
    if any(figure.by_target for figure in figures):
        wanted |= by_target
    names = [name for name in points.frame.columns if name in wanted]
    return {
        "shared": CONFIGURATIONS,
        "configurations": columns_of(points.frame, names),
        "targets": [
            {
                "title": points.subject.title(name),
                "floor": points.floor(name),
                "columns": columns_by_target(index),
            }
            for index, name in enumerate(targets)
        ],
        "figures": dict(_figures(figures)),
        "themes": {
            scheme: {"config": config(scheme), "colours": colours(scheme)}
            for scheme in get_args(Scheme)
        },
    }


def _figures(figures: list[Figure]) -> Iterator[tuple[str, dict[str, Any]]]:
    for figure in figures:
        sets = {
            name: columns_of(frame, list(frame.columns)) for name, frame in figure.data.items()
        }
        yield (
            figure.name,
            {
                "spec": figure.spec,
                "shared": figure.shared,
                "data": sets,
                "by_target": figure.by_target,
            },
        )


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element that it is embedded in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _sort_key(value: Value) -> float | None:
    match value:
        case Estimate():
            return value.mean if value.n and value.mean == value.mean else None
        case bool() | str() | None:
            return None
        case _:
            return float(value) if value == value else None
