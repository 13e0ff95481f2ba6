"""The printed numbers of a paper as cells, with their presets, and with a study's values.

`reported/paper_results.csv` holds the numbers, and the spaces under `search_spaces/` the presets.
"""

import functools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from scipy.special import stdtrit

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.papers.paper_results import Paper, paper_errata, paper_table
from tune_sentcl.config import TrialConfig, Values
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.space import spaces_of

OTHER_SYSTEMS = frozenset(
    ("bert-flow", "is-bert", "bsl", "ct", "consert", "sg-opt", "mirror-bert", "declutr")
)
"""Methods whose numbers the papers copy; no method here trains them."""

AVERAGE = "avg"
"""The task name of a printed average."""


CellVerdict = Literal[
    "MATCH", "WITHIN SEED NOISE", "NOT ENOUGH SEEDS", "MISS", "NOT COMPARABLE", "NOT RUN"
]

MIN_SEEDS = 3
"""With fewer seeds the interval holds nearly every number."""

_HALF = 0.005 + 1e-9
"""Half a unit of the papers' last decimal (the second), plus rounding error."""


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
        method: As in `paper_results`.
        task: As in `paper_results`; `avg` for an average.
        printed: The number, times 100.
        right: The mean of the scores beside it, for an average that the paper computed wrongly;
            else the printed number.
        numbers: The scores whose mean it is.
        errata: Its errors.
        said: What the paper states of the model, as dotted knobs; empty for `OTHER_SYSTEMS`.
        presets: The matching configurations in the spaces of its table; empty for
            `OTHER_SYSTEMS`.
    """

    paper: str
    table: str
    row: str
    method: str
    task: str
    printed: float
    right: float
    numbers: tuple[Number, ...]
    errata: tuple[str, ...]
    said: Values = field(hash=False)
    presets: tuple[TrialConfig, ...]


@dataclass(frozen=True)
class VerifiedCell:
    """One printed number and the study's value for it.

    Attributes:
        cell: The number.
        values: Our score of each seed, times 100; empty if the study has none.
        reasons: Why the two are not comparable, or why there is no value.
        notes: Further remarks.
        drawn: Whether the score depends on the seed; if not, one seed is enough.
    """

    cell: PaperCell
    values: Sequence[float] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    drawn: bool = True

    @property
    def n(self) -> int:
        """The number of our seeds."""
        return len(self.values)

    @property
    def ours(self) -> float | None:
        """The mean over our seeds; None if there is no value."""
        return mean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """The standard deviation over our seeds; None for fewer than two."""
        return sd(self.values) if self.n > 1 else None

    @property
    def delta(self) -> float | None:
        """Our mean minus the paper's number; minus the correct average if that is wrong."""
        return None if self.ours is None else self.ours - self.cell.right

    @property
    def verdict(self) -> CellVerdict:
        """The result of the comparison."""
        if not self.values:
            return "NOT RUN"
        if self.reasons:
            return "NOT COMPARABLE"
        if equal_after_rounding(mean(self.values), self.cell.right):
            return "MATCH"
        if not self.drawn:  # more seeds would give the same number again
            return "MISS"
        if self.n < MIN_SEEDS:
            return "NOT ENOUGH SEEDS"
        low, high = prediction_interval(self.values)
        return "WITHIN SEED NOISE" if low <= self.cell.right <= high else "MISS"

    @property
    def footnotes(self) -> list[str]:
        """The reasons as one text, the notes and the errata."""
        found = ["; ".join(self.reasons)] if self.reasons else []
        found += self.notes
        if self.cell.right != self.cell.printed:
            found.append(f"compared with {self.cell.right:g}, the mean of the scores beside it")
        if self.values and not self.drawn:
            found.append("every seed gives the same score")
        return [*found, *(f"erratum: {text}" for text in self.cell.errata)]

    @property
    def note(self) -> str:
        """The footnotes as one text."""
        return "; ".join(self.footnotes)


def equal_after_rounding(ours: float, printed: float) -> bool:
    """Whether a value rounds to the printed number, with two decimals.

    A value halfway between two printed numbers equals both: the papers do not state how they
    round.
    """
    return math.isclose(ours, printed, rel_tol=0, abs_tol=_HALF)


def prediction_interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval that contains one more normal value of the same kind in 95 of 100 cases.

    `mean -+ t * sd * sqrt(1 + 1/n)` with Student's t of n - 1 degrees of freedom: Hahn and
    Meeker, Statistical Intervals (1991), chapter 4.

    Args:
        values: At least two, such as one score of n seeds.
    """
    n = len(values)
    half_width = float(stdtrit(n - 1, 0.975)) * sd(values) * math.sqrt(1 + 1 / n)
    return mean(values) - half_width, mean(values) + half_width


def paper_cells(paper: Paper, table: int | None = None) -> list[PaperCell]:
    """List every number that a paper prints, in the order of its tables; or of one table only.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    errata, presets, cells = _errata_texts(), _presets(paper), []
    for line in lines_of(paper_table(paper, table)):
        said = json.loads(line.get("knobs", "{}"))
        own = presets[line["table"]] if said else []
        cells.append(
            PaperCell(
                paper=paper,
                table=line["table"],
                row=line.get("row", line["model"]),
                method=line["method"],
                task=line["task"],
                printed=line["score"],
                right=line.get("corrected", line["score"]),
                numbers=tuple(map(Number.read, line["numbers"].split())),
                errata=tuple(errata[int(place)] for place in line.get("errata", "").split()),
                said=said,
                presets=tuple(config for config, values in own if said.items() <= values.items()),
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
