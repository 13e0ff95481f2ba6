"""A report's tables in LaTeX and Markdown."""

import re
from collections.abc import Iterator, Sequence

import pandas as pd

from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.scores import LEGEND
from tune_sentcl.analysis.report.table import Estimate, Table, Value, one_line, written

_WIDEST = 6
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
    lines = [f"% {said}", r"% Needs \usepackage{booktabs}.", ""]
    for table in report.tables:
        if table.caption:
            for number, columns in enumerate(_parts(table, details=details), 1):
                lines.append(_tex_table(table, columns, f"-{number}" if number > 1 else ""))
    return "\n".join(lines)


def _parts(table: Table, *, details: bool) -> Iterator[list[int]]:
    """The columns of each float: knobs (none: joined in one), some scores, and details."""
    wanted = ("seeds", "time a trial", "GPU time a trial", "configuration") if details else ()
    others = [x for x, title in enumerate(table.columns) if title in wanted]
    room = _WIDEST - len(others)
    own = list(table.knobs) if len(table.knobs) <= room // 2 else []
    step = room - (len(own) or 1)
    for first in range(0, len(table.scores), step):
        yield [*own, *table.scores[first : first + step], *others]


def _tex_table(table: Table, columns: Sequence[int], number: str) -> str:
    kinds = ["lr"[table.numeric[x]] for x in columns]
    cells = [[_tex_cell(row[x]) for x in columns] for row in table.rows]
    titles = [_tex_escaped(table.columns[x]) for x in columns]
    if table.knobs and table.knobs[0] not in columns:
        kinds, titles = [_KNOBS, *kinds], ["knobs", *titles]
        cells = [
            [_tex_knobs(table, row), *own] for row, own in zip(table.rows, cells, strict=True)
        ]
    text = pd.DataFrame(cells, columns=pd.Index(titles)).to_latex(
        index=False,
        column_format="".join(kinds),
        position="t",
        caption=_tex_escaped(f"{table.caption} {LEGEND}."),
        label=f"tab:{table.name}{number}",
    )
    left = f"% {table.more} more rows were left out (--limit 0 writes all).\n" * bool(table.more)
    return left + text.replace(r"\begin{tabular}", "\\centering\n\\small\n\\begin{tabular}", 1)


def _tex_knobs(table: Table, row: Sequence[Value]) -> str:
    knobs = ((table.columns[x], written(row[x])) for x in table.knobs)
    return _tex_escaped(", ".join(f"{name} {text}" for name, text in knobs if text))


def _tex_cell(value: Value) -> str:
    if not isinstance(value, Estimate):
        return _tex_escaped(written(value))
    mark = {"best": r"\textbf{%s}", "near": r"\underline{%s}", "": "%s"}[value.mark]
    spread = rf" {{\scriptsize $\pm$ {value.spread}}}" if value.spread else ""
    return mark % value.shown + spread


def _tex_escaped(text: str) -> str:
    shown = "".join(_TEX_SPECIAL.get(character, character) for character in one_line(text))
    return shown.replace("--", "-{}-{}")  # LaTeX sets two hyphens as a dash


_SPECIAL = {**{c: f"\\{c}" for c in "\\|*_`"}, "<": "&lt;", "&": "&amp;"}


def markdown(report: Report) -> str:
    """Each table under its heading, with the best values in bold."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    answer = report.answer
    yield from (f"# {_escaped(report.title)}", "", _escaped(answer.lead), "")
    for one in answer.judgements:
        yield from (_escaped(f"{one.verdict} against the {one.asked}. {one.sentence}"), "")
    yield from (_escaped(" ".join(answer.notes)), "") if answer.notes else ()
    yield from ("```", *answer.steps, "```", "")
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
    # Not `DataFrame.to_markdown`, which needs one more package (tabulate).
    rows = [[*map(_cell, row)] for row in table.rows]
    rules = ["---:" if numeric else "---" for numeric in table.numeric]
    for cells in ([*map(_escaped, table.columns)], rules, *rows):
        yield f"| {' | '.join(cells)} |"
    if table.more:
        yield from ("", f"{table.more:,} more.")
    if table.note:
        yield from ("", _escaped(table.note))


def _cell(value: Value) -> str:
    shown = _escaped(written(value))
    if isinstance(value, Estimate) and value.mark:
        mark = "**{}**" if value.mark == "best" else "<ins>{}</ins>"
        return mark.format(value.shown) + shown.removeprefix(value.shown)
    return shown


def _escaped(text: str) -> str:
    """Escape characters that are special in Markdown or HTML."""
    return "".join(_SPECIAL.get(character, character) for character in one_line(text))
