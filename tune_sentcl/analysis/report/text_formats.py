"""A report's tables in LaTeX and Markdown."""

import re
from collections.abc import Iterator, Sequence

from tune_sentcl.analysis.report.marks import LEGEND
from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.table import Estimate, Table, Value, one_line, written

_WIDEST, _JOINED = 6, -1
_KNOBS = r"p{0.4\linewidth}"
_TEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    # LaTeX's default font encoding shows other characters in their place.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def latex(report: Report, *, details: bool = False) -> str:
    """Each table of scores as floats of at most six columns.

    Args:
        report: The report.
        details: Whether to add seeds, times and ids.
    """
    said = one_line(f"{report.title}: {report.answer.lead}")
    lines = [f"% {said}", r"% Needs \usepackage{booktabs}."]
    for table in report.tables:
        for number, columns in enumerate(_parts(table, details=details), 1):
            lines += ["", *_tex_table(table, columns, f"-{number}" if number > 1 else "")]
    return "\n".join(lines) + "\n"


def _parts(table: Table, *, details: bool) -> Iterator[list[int]]:
    """The columns of each float: knobs, some of the scores, and details."""
    wanted = ("seeds", "time a trial", "GPU time a trial", "configuration") if details else ()
    others = [x for x, title in enumerate(table.columns) if title in wanted]
    room = _WIDEST - len(others)
    own = list(table.knobs) if len(table.knobs) <= room // 2 else [_JOINED]
    step = room - len(own)
    for first in range(0, len(table.scores), step):
        yield [*own, *table.scores[first : first + step], *others]


def _tex_table(table: Table, columns: Sequence[int], number: str) -> Iterator[str]:
    if table.more:
        yield f"% {table.more} more rows were left out (--limit 0 writes all)."
    yield from (r"\begin{table}[t]", r"\centering", r"\small")
    kinds = "".join(_KNOBS if x == _JOINED else "lr"[table.numeric[x]] for x in columns)
    yield from (rf"\begin{{tabular}}{{{kinds}}}", r"\toprule")
    yield _tex_row("knobs" if x == _JOINED else _tex_escaped(table.columns[x]) for x in columns)
    yield r"\midrule"
    for y in range(len(table.rows)):
        yield _tex_row(_tex_cell(table, y, x) for x in columns)
    yield from (r"\bottomrule", r"\end{tabular}")
    yield rf"\caption{{{_tex_escaped(f'{table.caption} {LEGEND}.')}}}"
    yield from (rf"\label{{tab:{table.name}{number}}}", r"\end{table}")


def _tex_row(cells: Iterator[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _tex_cell(table: Table, y: int, x: int) -> str:
    if x == _JOINED:
        knobs = ((table.columns[k], written(table.rows[y][k])) for k in table.knobs)
        return _tex_escaped(", ".join(f"{name} {text}" for name, text in knobs if text))
    value = table.rows[y][x]
    if isinstance(value, Estimate):
        mark = r"\textbf" if (y, x) in table.best else r"\underline" * ((y, x) in table.near)
        shown = f"{mark}{{{value.shown}}}" if mark else value.shown
        return rf"{shown} {{\scriptsize $\pm$ {value.spread}}}" if value.spread else shown
    return _tex_escaped(written(value))


def _tex_escaped(text: str) -> str:
    shown = "".join(_TEX_SPECIAL.get(character, character) for character in one_line(text))
    return shown.replace("--", "-{}-{}")  # LaTeX sets two hyphens as a dash


_SPECIAL = {**{c: f"\\{c}" for c in "\\|*_`"}, "<": "&lt;", "&": "&amp;"}


def markdown(report: Report) -> str:
    """Each table under its heading, with the best values in bold."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield from (f"# {_escaped(report.title)}", "", _escaped(report.answer.lead), "")
    for one in report.answer.judgements:
        yield from (_escaped(f"{one.verdict} against the {one.asked}. {one.sentence}"), "")
    yield from (_escaped(" ".join(report.answer.notes)), "") if report.answer.notes else ()
    yield from ("```", *report.answer.steps, "```", "")
    yield (
        "; ".join(f"{name}: {value} ({words})" for name, value, words in report.key_figures) + "."
    )
    for section in report.sections:
        tables = [part for part in section.parts if isinstance(part, Table)]
        if tables or section.lines:
            yield from ("", f"## {section.title}")
        for table in tables:
            if table.title != section.title:
                yield from ("", f"### {table.title}")
            yield from ("", *_table(table))
        if section.lines:
            ticks = re.findall("`+", "".join(section.lines))
            fence = "`" * max([3, *(1 + len(run) for run in ticks)])
            yield from ("", fence, *section.lines, fence)


def _table(table: Table) -> Iterator[str]:
    yield _row(map(_escaped, table.columns))
    yield _row("---:" if numeric else "---" for numeric in table.numeric)
    for y, row in enumerate(table.rows):
        yield _row(_cell(value, table, (y, x)) for x, value in enumerate(row))
    if table.more:
        yield from ("", f"{table.more:,} more.")
    if table.note:
        yield from ("", _escaped(table.note))


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Value, table: Table, place: tuple[int, int]) -> str:
    shown = _escaped(written(value))
    for places, before, after in ((table.best, "**", "**"), (table.near, "<ins>", "</ins>")):
        if place in places and isinstance(value, Estimate):
            return f"{before}{value.shown}{after}{shown.removeprefix(value.shown)}"
    return shown


def _escaped(text: str) -> str:
    """Escape characters that are special in Markdown or HTML."""
    return "".join(_SPECIAL.get(character, character) for character in one_line(text))
