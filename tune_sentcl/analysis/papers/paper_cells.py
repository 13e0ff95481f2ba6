"""The numbers that the papers print, with the configurations and the scores that they stand for.

`reported/paper_results.csv` holds both; the spaces under `search_spaces/` hold the configurations.
"""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.papers.paper_results import Paper, paper_errata, paper_table
from tune_sentcl.config import TrialConfig, Values
from tune_sentcl.space import spaces_of

OTHER_SYSTEMS = frozenset(
    ("bert-flow", "is-bert", "bsl", "ct", "consert", "sg-opt", "mirror-bert", "declutr")
)
"""Methods whose numbers the papers copy; no method here trains them."""

AVERAGE = "avg"
"""The task name of a printed average."""


class Number(NamedTuple):
    """One score of a whole task, by the columns of the scores table."""

    task: str
    split: str
    metric: str
    protocol: str
    aggregation: str | None

    @classmethod
    def read(cls, text: str) -> "Number":
        """Parse `task/split/metric/protocol/aggregation`."""
        task, split, metric, protocol, aggregation = text.split("/")
        return cls(task, split, metric, protocol, aggregation or None)


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table: one model.

    Attributes:
        paper: The paper's short name.
        table: For example `Table 2`.
        name: The model's name in the paper; with the training data if the name occurs twice.
        method: As in `paper_results`.
        said: What the paper states, as dotted knobs; empty for `OTHER_SYSTEMS`.
        presets: The matching configurations in the spaces of its table; empty for
            `OTHER_SYSTEMS`.
    """

    paper: str
    table: str
    name: str
    method: str
    said: Values = field(hash=False)
    presets: tuple[TrialConfig, ...]


@dataclass(frozen=True)
class PaperCell:
    """One printed number.

    row: The model.
    task: As in `paper_results`; `avg` for an average.
    printed: The number, times 100.
    right: The mean of the scores beside it, for an average that the paper computed wrongly;
        else the printed number.
    numbers: The scores whose mean it is.
    errata: Its errors.
    """

    row: PaperRow
    task: str
    printed: float
    right: float
    numbers: tuple[Number, ...]
    errata: tuple[str, ...]


def paper_cells(paper: Paper, table: int | None = None) -> list[PaperCell]:
    """List every number that a paper prints, in the order of its tables; or of one table only.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    errata, presets = _errata_texts(), _presets(paper)
    rows: dict[tuple[str, str], PaperRow] = {}
    cells = []
    for line in lines_of(paper_table(paper, table)):
        name, said = line.get("row", line["model"]), json.loads(line.get("knobs", "{}"))
        key = line["table"], name
        if key not in rows:
            fits = [config for config, values in presets[key[0]] if said.items() <= values.items()]
            rows[key] = PaperRow(paper, *key, line["method"], said, tuple(fits if said else ()))
        cells.append(
            PaperCell(
                row=rows[key],
                task=line["task"],
                printed=line["score"],
                right=line.get("corrected", line["score"]),
                numbers=tuple(map(Number.read, line["numbers"].split())),
                errata=tuple(errata[int(place)] for place in line.get("errata", "").split()),
            )
        )
    return cells


def errata_without_cells(paper: Paper, cells: Iterable[PaperCell]) -> list[str]:
    """The errata of a paper that concern none of these cells."""
    attached = {text for cell in cells for text in cell.errata}
    return [text for text in _errata_texts(paper) if text not in attached]


@functools.cache
def named_values(paper: Paper, key: str) -> frozenset[Any]:
    """The values of a knob that the rows of a paper name."""
    rows = [json.loads(text) for text in paper_table(paper, None)["knobs"].dropna().unique()]
    return frozenset(said[key] for said in rows if key in said)


def _errata_texts(paper: Paper | None = None) -> list[str]:
    """Each erratum as one text; cells name them by their places among those of all papers."""
    return [
        f"{line['table']}, {line['model']}, {line['task']}: printed {line['printed']} "
        f"-> {line['corrected_or_recomputed']}: {line['evidence']}"
        for line in lines_of(paper_errata(paper))
    ]


@functools.cache
def _presets(paper: str) -> dict[str, list[tuple[TrialConfig, Values]]]:
    """The configurations of a paper's spaces, by table."""
    presets: dict[str, list[tuple[TrialConfig, Values]]] = {}
    for space in spaces_of(paper):
        for table in space.tables:
            rows = presets.setdefault(table.removeprefix(f"{paper} "), [])
            rows += [(config, config.dotted()) for config in space.configurations]
    return presets
