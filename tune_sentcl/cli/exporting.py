"""The command that writes a study's winner as a model."""

from typing import Annotated

import typer

from tune_sentcl.cli.exits import say
from tune_sentcl.cli.running import DataOption, JsonOption
from tune_sentcl.cli.tables import line, print_json, print_table
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
    soup: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The greedy average of the N best kept weights, chosen on dev."
        ),
    ] = None,
    data: DataOption = None,
    json_rows: JsonOption = False,
) -> None:
    """Write a study's winner as a folder that sentence-transformers loads, with a model card."""
    given = {"--trial": trial, "--best": best, "--soup": soup}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        rule = "one model is exported, and each of them chooses one"
        raise ConfigError(Fault(", ".join(named), "", "", rule, "Keep one of them."))
    from tune_sentcl.export.exporting import export_soup, export_trial

    if soup is None:
        found = export_trial(study, to, trial=trial, best=best, say=say)
    else:
        found = export_soup(study, to, soup, data=data, say=say)
    record = found.record
    if json_rows:
        print_json([{**record, "to": str(found.to)}])
    else:
        if soup is not None:
            print_table(record["tried"])
        value = "none" if record["value"] is None else f"{record['value']:.2f}"
        line(f"{record['kind'].capitalize()}: {record['model']}, {record['objective']} {value}")
        line(f"Model: {found.to}")
    for note in found.notes:
        say(f"note: {note}")
