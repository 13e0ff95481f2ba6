"""The printed numbers of a paper as cells, with the configurations that fill them.

`reported/paper_results.csv` holds the numbers. The blocks of the shipped search spaces name the
rows that their configurations fill (`paper_rows`).
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tune_sentcl.analysis.frames import lines_of
from tune_sentcl.analysis.papers.paper_results import Paper, paper_errata, paper_table
from tune_sentcl.config import TrialConfig
from tune_sentcl.space import spaces_of


class Number(NamedTuple):
    """One score of a whole task, by the columns of the scores table; `n` counts its rows."""

    task: str
    split: str
    metric: str
    protocol: str
    aggregation: str | None
    n: int

    @classmethod
    def read(cls, text: str) -> "Number":
        """Parse `task/split/metric/protocol/aggregation/n`."""
        task, split, metric, protocol, aggregation, n = text.split("/")
        return cls(task, split, metric, protocol, aggregation or None, int(n))


@dataclass(frozen=True)
class PaperCell:
    """One printed number.

    Attributes:
        paper: The paper's short name.
        table: For example `Table 2`.
        row: The model's name in the paper; with the training data if the name occurs twice.
        task: As in `paper_results`; `avg` for an average.
        printed: The number, times 100.
        right: The mean of the scores beside it, for an average that the paper computed wrongly;
            else the printed number.
        numbers: The scores whose mean it is.
        errata: Its errors.
        presets: The configurations that the search spaces name for its row; empty if the paper
            copied the number from another system.
    """

    paper: Paper
    table: str
    row: str
    task: str
    printed: float
    right: float
    numbers: tuple[Number, ...]
    errata: tuple[str, ...]
    presets: tuple[TrialConfig, ...]


def paper_cells(paper: Paper, table: int | None = None) -> list[PaperCell]:
    """List every number that a paper prints, in the order of its tables; or of one table only.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    errata, presets = _errata_texts(), presets_of(paper)
    return [
        PaperCell(
            paper=paper,
            table=line["table"],
            row=row,
            task=line["task"],
            printed=line["score"],
            right=line.get("corrected", line["score"]),
            numbers=tuple(map(Number.read, line["numbers"].split())),
            errata=tuple(errata[int(place)] for place in line.get("errata", "").split()),
            presets=tuple(one for one, rows in presets.items() if (line["table"], row) in rows),
        )
        for line in lines_of(paper_table(paper, table))
        for row in [line.get("row", line["model"])]
    ]


def errata_without_cells(paper: Paper, cells: Iterable[PaperCell]) -> list[str]:
    """The errata of a paper that concern none of these cells."""
    attached = {text for cell in cells for text in cell.errata}
    return [text for text in _errata_texts(paper) if text not in attached]


def _errata_texts(paper: Paper | None = None) -> list[str]:
    """Each erratum as one text; cells name them by their places among those of all papers."""
    return [
        f"{line['table']}, {line['model']}, {line['task']}: printed {line['printed']} "
        f"-> {line['corrected_or_recomputed']}: {line['evidence']}"
        for line in lines_of(paper_errata(paper))
    ]


@functools.cache
def presets_of(paper: Paper) -> dict[TrialConfig, set[tuple[str, str]]]:
    """The configurations of a paper's search spaces that fill rows of its tables.

    Each has the tables, such as `Table 2`, and the names of the rows.
    """
    found: dict[TrialConfig, set[tuple[str, str]]] = {}
    for space in spaces_of(paper):
        tables = [name.removeprefix(f"{paper} ") for name in space.tables]
        for row, config in space.paper_rows:
            found.setdefault(config, set()).update((table, row) for table in tables)
    return found
