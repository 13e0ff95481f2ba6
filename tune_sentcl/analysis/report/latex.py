"""A report's tables in LaTeX, ready to paste."""

from collections.abc import Iterator

from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.table import Estimate, Table, Value, one_line, written

_BROAD = 9
_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    # What LaTeX's first font encoding has in their places are other characters.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def latex(report: Report) -> str:
    """Every table as a float of its own, the best values in bold."""
    said = one_line(f"{report.title}: {report.lead}")
    lines = [f"% {said}", r"% Needs \usepackage{booktabs,graphicx}."]
    for table in report.tables:
        lines += ["", *_table(table)]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> Iterator[str]:
    if table.more:
        yield f"% {table.more} more rows were left out (--limit 0 writes all)."
    yield from (r"\begin{table}[t]", r"\centering", r"\small")
    kinds = "".join("r" if numeric else "l" for numeric in table.numeric)
    broad = len(table.columns) > _BROAD
    if broad:
        yield r"\resizebox{\linewidth}{!}{%"
    yield from (rf"\begin{{tabular}}{{{kinds}}}", r"\toprule")
    yield _row(_escaped(column) for column in table.columns)
    yield r"\midrule"
    for y, row in enumerate(table.rows):
        yield _row(_cell(value, (y, x) in table.best) for x, value in enumerate(row))
    yield from (r"\bottomrule", r"\end{tabular}" + ("}" if broad else ""))
    caption = f"{table.title}. {table.note}" if table.note else f"{table.title}."
    yield from (rf"\caption{{{_escaped(caption)}}}", rf"\label{{tab:{table.name}}}")
    yield r"\end{table}"


def _row(cells: Iterator[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _cell(value: Value, best: bool) -> str:
    if isinstance(value, Estimate):
        shown = rf"\textbf{{{value.shown}}}" if best else value.shown
        return rf"{shown} {{\scriptsize $\pm$ {value.spread}}}" if value.spread else shown
    return _escaped(written(value))


def _escaped(text: str) -> str:
    shown = "".join(_SPECIAL.get(character, character) for character in one_line(text))
    return shown.replace("--", "-{}-{}")  # two would become a dash
