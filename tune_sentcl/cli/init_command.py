"""The command `init`: a first search space for the user's examples."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tune_sentcl.cli.exits import unwritable
from tune_sentcl.cli.options import ColumnsOption, own_entries
from tune_sentcl.cli.terminal_tables import line
from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.split_names import split_named


def init(
    out: Annotated[Path, typer.Argument(help="Search space to write, such as mine.toml.")],
    rows: Annotated[
        Path,
        typer.Option(
            help="File of training examples, one a row: CSV, TSV, JSONL, Parquet or text."
        ),
    ],
    columns: ColumnsOption = "",
    dev: Annotated[
        Path | None,
        typer.Option(
            help="File or folder with the dev examples on which trials are scored. The task takes "
            "its name."
        ),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="Custom task that scores trials (repeatable). Without --own and --dev, a tenth "
            "of the rows becomes dev and another tenth test.",
        ),
    ] = None,
    encoder: Annotated[
        str,
        typer.Option(help="Base model: a folder, a hub name, `minilm`, `toy`, `static:NAME`."),
    ] = "minilm",
    clean: Annotated[
        bool,
        typer.Option(
            "--clean",
            help="Remove rows that repeat another row, that have two equal texts, or whose texts "
            "stand in a task. The other rows are written to a file beside the search space.",
        ),
    ] = False,
    minutes: Annotated[
        float,
        typer.Option(
            min=1, help="Time that the first of the two proposed searches may take, roughly."
        ),
    ] = 10,
) -> None:
    """Write a search space for your rows.

    It then prints two searches with their times on this machine.
    """
    entries = own_entries([*([f"{_task_name(dev)}={dev}"] if dev else []), *(own or ())])
    from tune_sentcl.init.new_space import new_space

    try:
        notes, objective = new_space(
            out, rows, columns=columns, own=entries, encoder=encoder, clean=clean
        )
    except OSError as error:
        raise unwritable("OUT", out, error) from None
    for note in notes:
        line(note)
    line(f"The search space {out} is written. Read it, then run one of these searches.")
    # This import is not at the top, because it loads torch.
    from tune_sentcl.init.first_look import proposed_searches

    for text in proposed_searches(out, objective, minutes):
        line(text)


def _task_name(path: Path) -> str:
    """The name of a task: its file or folder; for a file such as `dev.csv`, the file's folder."""
    whole = path.absolute()
    name = whole.name if whole.is_dir() else whole.stem
    name = name if split_named(name) is None else whole.parent.name
    plain = re.sub(r"[^\w.()-]", "-", name, flags=re.ASCII).strip("-.")
    for usable in (plain, f"mine-{plain}"):
        with suppress(ValueError):
            # `own_source` raises ValueError if a task cannot have this name.
            return own_source(f"{usable}={path}").name
    return "mine"
