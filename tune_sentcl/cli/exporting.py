"""The command that writes a study's winner as a model."""

from typing import Annotated

import typer

from tune_sentcl.cli.exits import say
from tune_sentcl.cli.running import JsonOption
from tune_sentcl.cli.tables import line, print_json
from tune_sentcl.errors import ConfigError, Fault


def export(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    to: Annotated[str, typer.Option(metavar="DIR", help="The new folder; nothing is there yet.")],
    trial: Annotated[
        str | None, typer.Option(metavar="ID", help="This trial; an id's beginning will do.")
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="The best trial by this score; default: by what the last search maximized first.",
        ),
    ] = None,
    json_rows: JsonOption = False,
) -> None:
    """Write a study's winner as a folder that sentence-transformers loads, with a model card."""
    if trial is not None and best is not None:
        rule = "one model is exported, and each of them chooses one"
        raise ConfigError(Fault("--trial, --best", "", "", rule, "Keep one of them."))
    from tune_sentcl.export.exporting import export_trial

    found = export_trial(study, to, trial=trial, best=best, say=say)
    record = found.record
    if json_rows:
        print_json([{**record, "to": str(found.to)}])
    else:
        value = "none" if record["value"] is None else f"{record['value']:.2f}"
        line(f"Trial: {record['model']}, {record['objective']} {value}")
        line(f"Model: {found.to}")
