"""The command `verify`: compares a study with the printed numbers of a paper."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.options import JsonOption
from tune_sentcl.cli.study_tables import say_trials_read
from tune_sentcl.cli.terminal_tables import line, print_json, wrapped

if TYPE_CHECKING:
    from tune_sentcl.analysis.papers.verification import Verification, VerifiedCell

_MEANINGS = {
    "MATCH": "equal after rounding",
    "WITHIN SEED NOISE": "inside the 95 % prediction interval of our seeds",
    "NOT ENOUGH SEEDS": "unequal, and fewer than three seeds give no interval",
    "MISS": "outside the interval",
    "NOT COMPARABLE": "run or measured in another way: see the footnote",
    "NOT RUN": "the study has no such number",
}


def verify(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    paper: Annotated[str, typer.Option(help="The paper: SCL, ConIsI or CLSR.")],
    table: Annotated[int | None, typer.Option(help="Only this table of the paper.")] = None,
    json_rows: JsonOption = False,
) -> None:
    """Compare a study with a paper: one verdict for each printed number."""
    from tune_sentcl.analysis.frames import read_study
    from tune_sentcl.analysis.papers.paper_results import paper_named, paper_table

    named = paper_named(paper)
    paper_table(named, table)  # refuse an unknown table before the study is read
    frames = read_study(study)
    say_trials_read(frames)
    from tune_sentcl.analysis.papers.verification import verify as held_against

    found = held_against(frames, named, table)
    if json_rows:
        print_json(_cell_rows(found.cells))
        return
    _print_cells(paper, found)
    _print_legend(found)


def _cell_rows(cells: Iterable["VerifiedCell"]) -> list[dict[str, Any]]:
    return [
        {
            "table": one.cell.row.table,
            "row": one.cell.row.name,
            "task": one.cell.task,
            "paper": one.cell.printed,
            "ours": one.ours,
            "sd": one.sd,
            "n": one.n,
            "verdict": one.verdict,
            "note": one.note,
        }
        for one in cells
    ]


def _print_cells(paper: str, found: "Verification") -> None:
    for table, cells in groupby(found.cells, lambda one: one.cell.row.table):
        notes: dict[str, int] = {}
        line(f"{paper}, {table}")
        line(f"  {'':9} {'paper':>6}  {'ours':>6} {'sd':>6} {'n':>3} {'delta':>7}")
        for name, row in groupby(cells, lambda one: one.cell.row.name):
            line(f" {name}")
            for one in row:
                line(_cell_line(one, [_number(notes, text) for text in _footnotes(one)]))
        for text, number in notes.items():
            wrapped(f"[{number}] {text}", indent="    ")
        line("")
    for text in found.errata:
        wrapped(f"erratum: {text}", indent="    ")


def _cell_line(one: "VerifiedCell", marks: Sequence[str]) -> str:
    ours, sd, delta = (
        "" if value is None else format(value, form)
        for value, form in ((one.ours, ".2f"), (one.sd, ".2f"), (one.delta, "+.2f"))
    )
    delta = "0.00" if delta in ("+0.00", "-0.00") else delta
    n = one.n or ""
    numbers = f"  {one.cell.task:9} {one.cell.printed:6.2f}  {ours:>6} {sd:>6} {n:>3} {delta:>7}"
    return f"{numbers}  {one.verdict} {''.join(marks)}".rstrip()


def _footnotes(one: "VerifiedCell") -> Iterable[str]:
    if one.reasons:
        yield "; ".join(one.reasons)
    yield from one.notes
    yield from (f"erratum: {text}" for text in one.cell.errata)


def _number(notes: dict[str, int], text: str) -> str:
    return f"[{notes.setdefault(text, len(notes) + 1)}]"


def _print_legend(found: "Verification") -> None:
    counts = Counter[str](one.verdict for one in found.cells)
    for verdict, meaning in _MEANINGS.items():
        if verdict in counts:
            line(f"{counts[verdict]:4} {verdict:17} {meaning}")
