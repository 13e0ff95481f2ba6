"""The numbers that the three papers print, as data frames and as cells with their configurations.

`reported/paper_results.csv` holds the numbers. The blocks of the presets name the rows of the
papers that their configurations fill (`paper_rows`).
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple

import pandas as pd

from tune_sentcl.analysis.frames import lines_of
from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.space import spaces_of

Paper = Literal["SCL", "ConIsI", "CLSR"]

PAPERS: tuple[Paper, ...] = ("SCL", "ConIsI", "CLSR")
_TYPES = {
    "lambda": "Float64",
    "temperature": "Float64",
    "batch_size": "Int64",
    "score": "float64",
    "corrected": "float64",
}
_CELL = ["row", "numbers", "corrected", "errata"]
"""Columns that say which scores a printed number is made of.

`row`: the model, with its training data if a table has the model's name twice. `numbers`: the
scores whose mean the number is, as task/split/metric/protocol/aggregation/rows. `corrected`: the
mean of the scores beside an average that the paper computed wrongly. `errata`: the numbers of the
lines of `errata.csv` that concern it, from 0.
"""


def paper_results(paper: Paper | None = None) -> pd.DataFrame:
    """Every score in the papers' tables, as printed: one row per number.

    Columns: `paper`, `table`, `model` (its name in the paper), `method`, `base_model`, `lambda`,
    `temperature`, `num_positives` and `num_negatives` (text: a number or `all`), `batch_size`,
    `pooling`, `strategy`, `train_data`, `metric_suite` (sts | transfer | stsb_dev), `task` (`avg`:
    the average that the paper prints) and `score`, times 100. A value is NA if the paper does not
    state it, or the model has no such parameter. `paper_errata` lists the numbers that are wrong.

    Args:
        paper: Return the rows of this paper only; None: of all.

    Raises:
        ConfigError: The paper does not exist.
    """
    return _read("paper_results.csv", paper).drop(columns=_CELL)


def paper_errata(paper: Paper | None = None) -> pd.DataFrame:
    """Errors and misleading statements in the papers' tables: one row per finding.

    Columns, all text: `paper`, `table`, `model`, `task`, `printed`, `corrected_or_recomputed`,
    `action_in_csv` (the value in `paper_results`) and `evidence`.

    Args:
        paper: Return the rows of this paper only; None: of all.

    Raises:
        ConfigError: The paper does not exist.
    """
    return _read("errata.csv", paper)


def paper_table(paper: Paper, table: int | None) -> pd.DataFrame:
    """One table with all columns of `paper_results.csv`, or all tables of a paper for None.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    every = _read("paper_results.csv", paper)
    rows = every if table is None else every[every["table"] == f"Table {table}"]
    if not len(rows):
        tables = every["table"].drop_duplicates().str.removeprefix("Table ")
        rule = f"the tables of {paper} with scores are {', '.join(tables)}"
        raise ConfigError(
            Fault("--table", value=str(table), rule=rule, move="Name one of these tables.")
        )
    return rows


def paper_named(name: str, where: str = "--paper") -> Paper:
    """The paper with a short name; `where` names the argument in the error.

    Raises:
        ConfigError: There is no such paper.
    """
    for paper in PAPERS:
        if paper == name:
            return paper
    near = [paper for paper in PAPERS if paper.lower() == str(name).lower()]
    move = f"Did you mean {near[0]}?" if near else "Name one of these papers."
    rule = f"must be {', '.join(PAPERS[:-1])} or {PAPERS[-1]}"
    raise ConfigError(Fault(where, value=repr(name), rule=rule, move=move))


def _read(name: str, paper: str | None) -> pd.DataFrame:
    kept = None if paper is None else paper_named(paper, "paper")
    file = resources.files("tune_sentcl.analysis") / "reported" / name
    with file.open(encoding="utf-8") as lines:
        # Texts such as "N/A" are values; only an empty field is missing.
        frame = pd.read_csv(lines, dtype="string", keep_default_na=False, na_values=[""])
    frame = frame.astype({key: _TYPES[key] for key in frame.columns if key in _TYPES})
    chosen = frame if kept is None else frame[frame["paper"] == kept]
    return chosen.reset_index(drop=True)


class Number(NamedTuple):
    """One score of a whole task, named by columns of the scores table; `n` counts its rows."""

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
        row: The model's name in the paper, with its training data if the name occurs twice.
        task: As in `paper_results`; `avg` for an average.
        printed: The number, times 100.
        right: The mean of the scores beside it, for an average that the paper computed wrongly;
            else the printed number.
        numbers: The scores whose mean the printed number is.
        errata: Its errors.
        presets: The configurations that fill its row, by the presets; empty if the paper copied
            the number from another system.
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
    """Each erratum as one text; cells name errata by position in the list of all papers."""
    return [
        f"{line['table']}, {line['model']}, {line['task']}: printed {line['printed']} "
        f"-> {line['corrected_or_recomputed']}: {line['evidence']}"
        for line in lines_of(paper_errata(paper))
    ]


@functools.cache
def presets_of(paper: Paper) -> dict[TrialConfig, set[tuple[str, str]]]:
    """The configurations of a paper's presets that fill rows of its tables.

    Each configuration has pairs of a table, such as `Table 2`, and the name of a row.
    """
    found: dict[TrialConfig, set[tuple[str, str]]] = {}
    for space in spaces_of(paper):
        tables = [name.removeprefix(f"{paper} ") for name in space.tables]
        for row, config in space.paper_rows:
            found.setdefault(config, set()).update((table, row) for table in tables)
    return found
