"""A report's tables in LaTeX and Markdown."""

import re
from collections.abc import Iterator

from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.table import Estimate, Table, Value, one_line, written

_BROAD = 9
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


def latex(report: Report) -> str:
    """Each table as a float, with the best values in bold."""
    said = one_line(f"{report.title}: {report.lead}")
    lines = [f"% {said}", r"% Needs \usepackage{booktabs,graphicx}."]
    for table in report.tables:
        lines += ["", *_tex_table(table)]
    return "\n".join(lines) + "\n"


def _tex_table(table: Table) -> Iterator[str]:
    if table.more:
        yield f"% {table.more} more rows were left out (--limit 0 writes all)."
    yield from (r"\begin{table}[t]", r"\centering", r"\small")
    kinds = "".join("r" if numeric else "l" for numeric in table.numeric)
    broad = len(table.columns) > _BROAD
    if broad:
        yield r"\resizebox{\linewidth}{!}{%"
    yield from (rf"\begin{{tabular}}{{{kinds}}}", r"\toprule")
    yield _tex_row(_tex_escaped(column) for column in table.columns)
    yield r"\midrule"
    for y, row in enumerate(table.rows):
        yield _tex_row(_tex_cell(value, (y, x) in table.best) for x, value in enumerate(row))
    yield from (r"\bottomrule", r"\end{tabular}" + ("}" if broad else ""))
    caption = f"{table.title}. {table.note}" if table.note else f"{table.title}."
    yield from (rf"\caption{{{_tex_escaped(caption)}}}", rf"\label{{tab:{table.name}}}")
    yield r"\end{table}"


def _tex_row(cells: Iterator[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _tex_cell(value: Value, best: bool) -> str:
    if isinstance(value, Estimate):
        shown = rf"\textbf{{{value.shown}}}" if best else value.shown
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
    yield from (f"# {_escaped(report.title)}", "", _escaped(report.lead), "")
    for one in report.answer.judgements:
        yield from (_escaped(f"{one.verdict} against the {one.asked}. {one.sentence}"), "")
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
