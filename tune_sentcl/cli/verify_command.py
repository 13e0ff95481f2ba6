"""The command `verify`: compares a study with the printed numbers of a paper."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.options import JsonOption
from tune_sentcl.cli.terminal_tables import line, print_json, wrapped

if TYPE_CHECKING:
    from tune_sentcl.analysis.papers.verification import VerifiedCell

_MEANINGS = {
    "MATCH": "equal to the paper's number after rounding",
    "WITHIN SEED NOISE": (
        "the paper's number lies inside the 95 % prediction interval of our seeds"
    ),
    "NOT ENOUGH SEEDS": "the numbers differ, and fewer than three seeds give no interval",
    "MISS": "the paper's number lies outside the interval",
    "NOT COMPARABLE": "our trials were trained or measured in another way: see the footnote",
    "NOT RUN": "the study has no score for this number",
}


def verify(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    paper: Annotated[str, typer.Option(help="Paper to compare with: SCL, ConIsI or CLSR.")],
    table: Annotated[
        int | None, typer.Option(help="Compare with this table of the paper only.")
    ] = None,
    json_rows: JsonOption = False,
) -> None:
    """Compare a study with the printed numbers of a paper."""
    from tune_sentcl.analysis.frames import read_study
    from tune_sentcl.analysis.papers.paper_results import (
        errata_without_cells,
        paper_named,
        paper_table,
    )

    named = paper_named(paper)
    # `paper_table` refuses an unknown table before the study is read, which may take long.
    paper_table(named, table)
    frames = read_study(study)
    from tune_sentcl.analysis.papers.verification import verify as compared

    verified = compared(frames, named, table)
    if json_rows:
        print_json([_row(one) for one in verified])
        return
    for title, cells in groupby(verified, lambda one: one.cell.table):
        _print_table(f"{paper}, {title}", cells)
    for text in () if table else errata_without_cells(named, [one.cell for one in verified]):
        wrapped(f"erratum: {text}", indent="    ")
    counts = Counter[str](one.verdict for one in verified)
    for verdict, meaning in _MEANINGS.items():
        if verdict in counts:
            line(f"{counts[verdict]:4} {verdict:17} {meaning}")


def _row(verified: "VerifiedCell") -> dict[str, Any]:
    cell = verified.cell
    row = {"table": cell.table, "row": cell.row, "task": cell.task, "paper": cell.printed}
    ours = verified.ours
    seeds = {"ours": ours.mean, "sd": ours.sd, "n": ours.n}
    return row | seeds | {"verdict": verified.verdict, "note": "; ".join(verified.footnotes)}


def _print_table(title: str, cells: Iterable["VerifiedCell"]) -> None:
    """Print the cells of a table, each with its footnotes' numbers, then the footnotes."""
    notes: dict[str, int] = {}
    line(title)
    line(f"  {'':9} {'paper':>6}  {'ours':>6} {'sd':>6} {'n':>3} {'delta':>7}")
    for name, row in groupby(cells, lambda verified: verified.cell.row):
        line(f" {name}")
        for one in row:
            marks = [notes.setdefault(text, len(notes) + 1) for text in one.footnotes]
            delta = f"{one.delta:+.2f}" if one.ours.n else ""
            delta = "0.00" if delta in ("+0.00", "-0.00") else delta
            seeds = f"{one.ours.shown:>6} {one.ours.spread:>6} {one.ours.n or '':>3}"
            numbers = f"{one.cell.printed:6.2f}  {seeds} {delta:>7}"
            verdict = f"{one.verdict} {''.join(f'[{mark}]' for mark in marks)}"
            line(f"  {one.cell.task:9} {numbers}  {verdict}".rstrip())
    for text, number in notes.items():
        wrapped(f"[{number}] {text}", indent="    ")
    line("")
