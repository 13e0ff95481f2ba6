"""The command that brings studies together."""

import dataclasses
import sys
from typing import Annotated

import typer

from tune_sentcl.cli.running import JsonOption
from tune_sentcl.cli.tables import line, print_json, print_table


def merge(
    studies: Annotated[list[str], typer.Argument(help="Folders or URLs of two studies or more.")],
    to: Annotated[str, typer.Option(help="Folder or URL of the new study; nothing is there yet.")],
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", help="Copy kept checkpoints too.")
    ] = True,
    json_rows: JsonOption = False,
) -> None:
    """Bring studies together in a new one, each trial once; they are only read."""
    from tune_sentcl.store.merging import merge as merged
    from tune_sentcl.store.provenance import mask_text

    found = merged(studies, to, command=sys.argv, weights=weights)
    rows = [dataclasses.asdict(source) for source in found]
    if json_rows:
        print_json(rows)
        return
    print_table(rows)
    line(f"Study: {mask_text(to)}, {sum(source.counted for source in found)} trials")
