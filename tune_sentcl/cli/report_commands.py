"""The commands `report` and `export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tune_sentcl.cli.exits import json_stream, say, unwritable
from tune_sentcl.cli.options import JsonOption, RankByOption
from tune_sentcl.cli.terminal_tables import json_text, line, print_json
from tune_sentcl.errors import ConfigError, Fault

if TYPE_CHECKING:
    from tune_sentcl.analysis.report.report_data import ReportData

Format = Literal["html", "tex", "csv", "json"]

_ROWS = 50
_PAGE = "report.html"
_ENDINGS = {"html": "html", "tex": "tex", "csv": "csv", "json": "json", "htm": "html"}


def report(
    study: Annotated[list[str], typer.Argument(help="Folder or URL of a study (repeatable).")],
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Format of the report. html: a page; tex: tables for LaTeX; csv or json: the "
            "leaderboard. Default: the suffix of --out, else html.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"File to write. Default: {_PAGE} for html; other formats print to stdout."
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Folder to which the figures are written as SVG, PNG and PDF. This needs the "
            "extra `figures`."
        ),
    ] = None,
    objective: RankByOption = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Largest number of rows in a table; 0: all rows.")
    ] = _ROWS,
    json_rows: JsonOption = False,
) -> None:
    """Write tables and figures of studies as one page."""
    kind = _format(format_, out, json_rows)
    if figures is not None:
        from tune_sentcl.analysis.report.formats import check_pictures

        check_pictures()
    from tune_sentcl.analysis import read_study
    from tune_sentcl.analysis.frames import rows_of
    from tune_sentcl.analysis.report.report_data import ReportData
    from tune_sentcl.analysis.report.scores import leaderboard_frame
    from tune_sentcl.store.study import Study

    frames = read_study(study[0] if len(study) == 1 else study)
    alone = Study.read(study[0]) if len(study) == 1 else None
    subject = ReportData(frames, frames.objectives(objective), alone)
    if kind == "json":
        _write(json_text(rows_of(leaderboard_frame(subject))), out)
    elif kind == "csv":
        _write(leaderboard_frame(subject).to_csv(index=False), out)
    if figures is not None or kind not in ("csv", "json"):
        _report(subject, kind, limit, out, figures)


def _report(
    subject: "ReportData", kind: str, limit: int, out: Path | None, figures: Path | None
) -> None:
    """Write the report in one format, and its figures if there is a folder for them."""
    from tune_sentcl.analysis.report import formats
    from tune_sentcl.analysis.report.report import report_of

    made = report_of(subject, limit, figures=kind == "html" or figures is not None)
    if kind == "html":
        _write(formats.html(made), Path(_PAGE) if out is None else out)
    elif kind == "tex":
        _write(formats.latex(made), out)
    if figures is not None:
        try:
            files = formats.write_pictures(made, figures)
        except OSError as error:
            raise unwritable("--figures", figures, error) from None
        say(f"Figures: {figures}, {len(files)} files")


def _format(asked: Format | None, out: Path | None, json_rows: bool) -> str:
    if json_rows:
        if asked is not None or out is not None:
            rule = "prints the leaderboard to stdout and writes no report"
            raise ConfigError(
                Fault("--json", rule=rule, move="Remove it, or remove --format and --out.")
            )
        return "json"
    suffix = "html" if out is None else out.suffix.lower().removeprefix(".")
    kind = asked or _ENDINGS.get(suffix)
    if kind is None:
        rule = f"must end in .{', .'.join(_ENDINGS)} unless --format is given"
        raise ConfigError(
            Fault("--out", value=str(out), rule=rule, move="Add --format html, for example.")
        )
    return kind


def _write(text: str, out: Path | None) -> None:
    """Write to stdout, or to a file that is replaced once the whole text is written."""
    if out is None:
        json_stream().write(text)  # with --json, the text is JSON
        return
    from tune_sentcl.store.disk import atomic_file

    try:
        with atomic_file(out) as file:
            file.write(text.encode())
    except (OSError, ValueError) as error:
        # `Path.with_name` raises ValueError for a path without a name, such as ".".
        raise unwritable("--out", out, error) from None
    line(f"Report: {out}")


def export(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    to: Annotated[
        str, typer.Option(metavar="DIR", help="Folder that the command creates for the model.")
    ],
    trial: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Id of the trial to export, or the start of the id."),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="Export the best trial of the best configuration by this score. Default: the "
            "first objective of the last search.",
        ),
    ] = None,
    json_rows: JsonOption = False,
) -> None:
    """Write a trial's model as sentence-transformers' folder."""
    if trial is not None and best is not None:
        rule = "each of these options chooses the model to export"
        raise ConfigError(Fault("--trial, --best", rule=rule, move="Remove all but one of them."))
    from tune_sentcl.export.model_folder import export_trial

    found = export_trial(study, to, trial=trial, best=best, say=say)
    record = found.record
    if json_rows:
        print_json([{**record, "to": str(found.to)}])
    else:
        value = "none" if record["value"] is None else f"{record['value']:.2f}"
        line(f"Trial: {record['model']}, {record['objective']} {value}")
        line(f"Model: {found.to}")
