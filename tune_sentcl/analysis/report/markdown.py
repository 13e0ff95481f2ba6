"""A report's tables in Markdown, ready to paste."""

import re
from collections.abc import Iterator

from tune_sentcl.analysis.report.report import Report
from tune_sentcl.analysis.report.table import Estimate, Table, Value, one_line, written

_SPECIAL = {**{c: f"\\{c}" for c in "\\|*_`"}, "<": "&lt;", "&": "&amp;"}


def markdown(report: Report) -> str:
    """Every table under its heading, the best values in bold."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield from (f"# {_escaped(report.title)}", "", _escaped(report.lead), "")
    yield "; ".join(f"{name}: {value} ({words})" for name, value, words in report.facts) + "."
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
        yield _row(_cell(value, (y, x) in table.best) for x, value in enumerate(row))
    if table.more:
        yield from ("", f"{table.more:,} more.")
    if table.note:
        yield from ("", _escaped(table.note))


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Value, best: bool) -> str:
    if best and isinstance(value, Estimate):
        return f"**{value.shown}**" + (f" ± {value.spread}" if value.spread else "")
    return _escaped(written(value))


def _escaped(text: str) -> str:
    """Text that neither Markdown nor HTML takes for its own."""
    return "".join(_SPECIAL.get(character, character) for character in one_line(text))
