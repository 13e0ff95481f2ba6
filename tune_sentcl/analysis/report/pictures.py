"""Write a report's figures as files, with vl-convert (no browser needed)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.analysis.report.figure import CONFIGURATIONS, Figure, Spec, columns_of, themed
from tune_sentcl.analysis.report.points import Points, columns_by_target
from tune_sentcl.analysis.report.report import Report
from tune_sentcl.errors import Fault, ResourceError

_NARROW, _WIDE = 460, 980
_SCALE = 2.0


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
    written = []
    for name, spec in _pictures(report):
        svg = vl_convert.vegalite_to_svg(spec)  # slow; PNG and PDF are made from the SVG
        made = (
            ("svg", svg.encode()),
            ("png", vl_convert.svg_to_png(svg, scale=_SCALE)),
            ("pdf", vl_convert.svg_to_pdf(svg)),
        )
        for kind, content in made:
            path = folder / f"{name}.{kind}"
            path.write_bytes(content)
            written.append(path)
    return written


def _pictures(report: Report) -> Iterator[tuple[str, Spec]]:
    targets = report.points.subject.targets
    for figure in report.figures:
        for index in range(len(targets) if figure.by_target else 1):
            suffix = f"-{_slug(targets[index])}" if index else ""
            yield f"{figure.name}{suffix}", whole(figure, report.points, index)


def whole(figure: Figure, points: Points, target: int = 0) -> Spec:
    """A figure's specification on white, with its data for one target."""
    title = points.subject.title(points.subject.targets[target])
    floor = points.floor(points.subject.targets[target])
    spec = themed(figure.spec, "light")
    for layer in spec.get("layer", ()) if figure.by_target else ():
        y = layer["encoding"]["y"]
        y["title"] = title
        if floor is not None:
            y["scale"] = {**y["scale"], "domainMin": floor}
    sets: dict[str, Any] = {}
    for name, frame in figure.data.items() if not (figure.by_target and target) else ():
        sets[name] = _rows(columns_of(frame, list(frame.columns)))
    if figure.shared:
        columns = columns_of(points.frame, figure.shared)
        if figure.by_target:
            renamed = columns_by_target(target)
            found = columns_of(points.frame, list(renamed.values()))
            columns |= {name: found[column] for name, column in renamed.items()}
        sets[CONFIGURATIONS] = _rows(columns)
    spec["config"]["background"] = "#ffffff"
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        **spec,
        "width": _WIDE if figure.wide else _NARROW,
        "padding": 12,
        "datasets": sets,
    }


def _rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _slug(target: str) -> str:
    return target.lower().replace(":", "-").replace(" ", "-")
