"""The command that asks a study in SQL."""

import sys
from typing import Annotated, Any

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.running import JsonOption
from tune_sentcl.cli.studies import SHOWN
from tune_sentcl.cli.tables import line, print_json, print_table
from tune_sentcl.errors import ConfigError, Fault

_COLUMNS = 20  # a line of 200 characters has no room for more


def query(
    study: Annotated[list[str], typer.Argument(help="Folder or URL of a study, or of several.")],
    sql: Annotated[
        str, typer.Argument(help="One SELECT, over the tables trials, scores and curves.")
    ],
    limit: Annotated[int, typer.Option(min=0, help="Rows to print; 0: all.")] = SHOWN,
    skip_damaged: Annotated[
        bool,
        typer.Option(
            "--skip-damaged", help="Leave out what is damaged, say so, and end with exit code 1."
        ),
    ] = False,
    json_rows: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Every row as CSV on stdout.")] = False,
) -> None:
    """Ask a study, or several as one, in SQL (DuckDB, the extra `query`); it is only read."""
    from tune_sentcl.store.reading import read
    from tune_sentcl.store.sql import query as answer_of

    if json_rows and csv:
        fault = Fault("--json, --csv", "", "", "stdout has room for one of them", "Drop one.")
        raise ConfigError(fault)
    reading = read(study[0] if len(study) == 1 else study, "skip" if skip_damaged else "raise")
    answer = answer_of(reading.snapshot, sql)
    if csv:
        from tune_sentcl.analysis.conversion import frame_of

        frame_of(answer).to_csv(sys.stdout, index=False)
    elif json_rows:
        print_json(answer.to_pylist())
    else:
        _print((answer.slice(0, limit) if limit else answer).to_pylist())
        if limit and len(answer) > limit:
            line(f"{len(answer) - limit} more: --limit 0 prints all.")
    for fault in reading.faults:
        say(f"error: {fault}")
    if reading.faults:
        raise typer.Exit(FAILED)


def _print(rows: list[dict[str, Any]]) -> None:
    """A table; of rows that no line has room for, a table each of what they hold."""
    if not rows or len(rows[0]) <= _COLUMNS:
        print_table(rows)
        return
    for number, row in enumerate(rows, 1):
        held = [{"column": key, "value": value} for key, value in row.items() if value is not None]
        print_table(held, f"Row {number}")
