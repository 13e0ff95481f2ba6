"""A report as one HTML file that needs no network, and as LaTeX; its figures as files."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from tune_sentcl.analysis.frames import rows_of
from tune_sentcl.analysis.report.figure import (
    CONFIGURATIONS,
    Figure,
    Spec,
    columns_of,
    filled_in,
    page_file,
    slug,
    themes,
)
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.scores import LEGEND
from tune_sentcl.analysis.report.table import Table, Value, one_line, written
from tune_sentcl.errors import Fault, ResourceError

VEGA = "6.2, Vega-Lite 6.4"
"""The releases in `page/vega.js`."""
_WIDTH = 460
_SCALE = 2.0


def html(report: Report) -> str:
    """Render the page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FunctionLoader(page_file)
    )
    return environment.get_template("report.html").render(
        report=report,
        version=metadata.version("tune-sentcl"),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        vega=VEGA,
        css=Markup(page_file("report.css")),
        js=Markup(page_file("report.js")),
        vega_js=Markup(page_file("vega.js")),
        data=Markup(_data(report)),
        written=written,
    )


def _data(report: Report) -> str:
    """JSON for a script element, without any text that would end the element."""
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
        "themes": themes(),
    }
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def check_pictures() -> None:
    """Check that vl-convert is installed.

    Raises:
        ResourceError: vl-convert is not installed.
    """
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        rule = "the extra `figures` is not installed"
        move = 'Run: pip install "tune-sentcl[figures]".'
        raise ResourceError(Fault("vl-convert", rule=rule, move=move)) from None


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write each figure as SVG, PNG and PDF on white, once per score if its score is selectable.

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
        # this takes most of the time, so PNG and PDF are made from the SVG
        svg = vl_convert.vegalite_to_svg(spec)
        png, pdf = vl_convert.svg_to_png(svg, scale=_SCALE), vl_convert.svg_to_pdf(svg)
        for kind, content in (("svg", svg.encode()), ("png", png), ("pdf", pdf)):
            paths.append(folder / f"{name}.{kind}")
            paths[-1].write_bytes(content)
    return paths


def _pictures(report: Report) -> Iterator[tuple[str, Spec]]:
    targets = report.points.subject.targets
    for figure in report.figures:
        for index, target in enumerate(targets if figure.by_target else targets[:1]):
            suffix = f"-{slug(target)}" if index else ""
            yield f"{figure.name}{suffix}", picture(figure, report.points, index)


def picture(figure: Figure, points: Points, target: int = 0) -> Spec:
    """A figure's specification with its data, on white, for the target with this number."""
    frames = {CONFIGURATIONS: points.frame, **figure.data}
    light = themes()["light"]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **filled_in(figure.spec, {**light["colours"], **points.scores[target]}),
        "config": {**light["config"], "background": "#ffffff"},
        "width": _WIDTH,
        "padding": 12,
        "datasets": {name: rows_of(frame) for name, frame in frames.items()},
    }


# The largest number of score columns of a LaTeX table, in addition to the hyperparameters.
_SCORES = 5
_TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    # In its default font encoding, LaTeX prints other characters for these.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def latex(report: Report) -> str:
    """Each table of scores as LaTeX floats with the hyperparameters and at most five scores."""
    said = one_line(f"{report.title}: {report.answer.sentence}")
    lines = [f"% {said}", r"% Needs \usepackage{booktabs,xcolor}.", ""]
    for table in report.tables:
        if table.caption:
            for number, first in enumerate(range(0, len(table.scores), _SCORES), 1):
                columns = table.scores[first : first + _SCORES]
                lines.append(_tex_table(table, columns, f"-{number}" if number > 1 else ""))
    return "\n".join(lines)


def _tex_table(table: Table, columns: Sequence[int], number: str) -> str:
    cells = [
        [_tex_knobs(table, row), *(_tex_escaped(written(row[x])) for x in columns)]
        for row in table.rows
    ]
    titles = ["knobs", *(_tex_escaped(table.columns[x]) for x in columns)]
    styler = pd.DataFrame(cells, columns=pd.Index(titles)).style.hide(axis="index")
    for mark, style in (("winner", "font-weight: bold"), ("worse", "color: gray")):
        marked = [row for row in range(len(cells)) if table.marks[row] == mark]
        name, _, value = style.partition(": ")
        styler = styler.set_properties(subset=(marked, styler.columns), **{name: value})
    text = styler.to_latex(
        hrules=True,
        convert_css=True,
        column_format=r"p{0.4\linewidth}" + "r" * len(columns),
        position="t",
        position_float="centering",
        caption=_tex_escaped(f"{table.caption} {LEGEND}."),
        label=f"tab:{table.name}{number}",
    )
    left = f"% {table.more} more rows were left out (--limit 0 writes all).\n" * bool(table.more)
    return left + text.replace(r"\begin{tabular}", "\\small\n\\begin{tabular}", 1)


def _tex_knobs(table: Table, row: Sequence[Value]) -> str:
    knobs = ((table.columns[x], written(row[x])) for x in table.knobs)
    return _tex_escaped(", ".join(f"{name} {text}" for name, text in knobs if text))


def _tex_escaped(text: str) -> str:
    shown = "".join(_TEX_SPECIAL.get(character, character) for character in one_line(text))
    return shown.replace("--", "-{}-{}")  # LaTeX turns two hyphens into a dash
