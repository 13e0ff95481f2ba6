"""A report as one self-contained HTML file that needs no network, and its figures as files."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import get_args

import jinja2
from markupsafe import Markup

from tune_sentcl.analysis.report.figure import (
    CONFIGURATIONS,
    Figure,
    Scheme,
    Spec,
    colours,
    columns_of,
    config,
    filled_in,
)
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.table import written
from tune_sentcl.errors import Fault, ResourceError

VEGA = "6.2, Vega-Lite 6.4"
"""The releases in `page/vega.js`."""
_NARROW, _WIDE = 460, 980
_SCALE = 2.0


def html(report: Report) -> str:
    """Render the page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FunctionLoader(_file)
    )
    return environment.get_template("report.html").render(
        report=report,
        version=metadata.version("tune-sentcl"),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        vega=VEGA,
        css=Markup(_file("report.css")),
        js=Markup(_file("report.js")),
        vega_js=Markup(_file("vega.js")),
        data=Markup(_data(report)),
        written=written,
    )


def _file(name: str) -> str:
    folder = resources.files("tune_sentcl.analysis.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _data(report: Report) -> str:
    """JSON that cannot end the script element that it is embedded in."""
    figures = {
        figure.name: {
            "spec": figure.spec,
            "data": {name: columns_of(frame) for name, frame in figure.data.items()},
            "by_target": figure.by_target,
        }
        for figure in report.figures
    }
    found = {
        "shared": {CONFIGURATIONS: columns_of(report.points.frame)} if figures else {},
        "targets": report.points.scores if figures else [],
        "figures": figures,
        "themes": {
            scheme: {"config": config(scheme), "colours": colours(scheme)}
            for scheme in get_args(Scheme)
        },
    }
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def check_pictures() -> None:
    """Check that vl-convert is installed.

    Raises:
        ResourceError: It is not.
    """
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        rule, move = "is not installed", 'Run: pip install "tune-sentcl[figures]".'
        raise ResourceError(Fault("vl-convert", "", "", rule, move)) from None


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write each figure as SVG, PNG and PDF on white; if the score is selectable, one per score.

    Creates the folder if needed and replaces files of the same names.

    Raises:
        ResourceError: vl-convert is not installed.
        OSError: A file could not be written.
    """
    check_pictures()
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, spec in _pictures(report):
        svg = vl_convert.vegalite_to_svg(spec)  # slow; PNG and PDF are made from the SVG
        png, pdf = vl_convert.svg_to_png(svg, scale=_SCALE), vl_convert.svg_to_pdf(svg)
        for kind, content in (("svg", svg.encode()), ("png", png), ("pdf", pdf)):
            paths.append(folder / f"{name}.{kind}")
            paths[-1].write_bytes(content)
    return paths


def _pictures(report: Report) -> Iterator[tuple[str, Spec]]:
    targets = report.points.subject.targets
    for figure in report.figures:
        for index, target in enumerate(targets if figure.by_target else targets[:1]):
            suffix = f"-{target.lower().replace(':', '-').replace(' ', '-')}" if index else ""
            yield f"{figure.name}{suffix}", picture(figure, report.points, index)


def picture(figure: Figure, points: Points, target: int = 0) -> Spec:
    """A figure's specification on white, with its data, for one of the targets."""
    frames = {CONFIGURATIONS: points.frame, **figure.data}
    rows = {name: columns_of(frame) for name, frame in frames.items()}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **filled_in(figure.spec, {**colours("light"), **points.scores[target]}),
        "config": {**config("light"), "background": "#ffffff"},
        "width": _WIDE if figure.wide else _NARROW,
        "padding": 12,
        "datasets": {
            name: [dict(zip(own, row, strict=True)) for row in zip(*own.values(), strict=True)]
            for name, own in rows.items()
        },
    }
