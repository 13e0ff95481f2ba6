"""Compare each number that a paper prints with a study."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.papers.paper_cells import PaperCell, errata_without_cells, paper_cells
from tune_sentcl.analysis.papers.paper_results import Paper
from tune_sentcl.analysis.papers.reproduction import ReproducedNumber, Reproduction
from tune_sentcl.judging.statistics import mean, sd

CellVerdict = Literal[
    "MATCH", "WITHIN SEED NOISE", "NOT ENOUGH SEEDS", "MISS", "NOT COMPARABLE", "NOT RUN"
]

MIN_SEEDS = 3
"""With fewer seeds the interval holds nearly every number."""

_HALF = 0.005 + 1e-9
"""Half a unit of the papers' last decimal (the second), plus rounding error."""


@dataclass(frozen=True)
class VerifiedCell:
    """One printed number and the study's value for it.

    Attributes:
        cell: The number.
        ours: The mean over our seeds, times 100; None if there is no value.
        sd: The standard deviation over seeds; None for fewer than two.
        n: The number of seeds.
        verdict: The result of the comparison.
        reasons: Why the two are not comparable, or why there is no value.
        notes: Further remarks.
    """

    cell: PaperCell
    ours: float | None
    sd: float | None
    n: int
    verdict: CellVerdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def delta(self) -> float | None:
        """Our mean minus the paper's number; minus the correct average if that is wrong."""
        return None if self.ours is None else self.ours - self.cell.right

    @property
    def footnotes(self) -> list[str]:
        """The reasons as one text, the notes and the errata."""
        reasons = ["; ".join(self.reasons)] if self.reasons else []
        return [*reasons, *self.notes, *(f"erratum: {text}" for text in self.cell.errata)]

    @property
    def note(self) -> str:
        """The footnotes as one text."""
        return "; ".join(self.footnotes)


def verified(cell: PaperCell, reproduced: ReproducedNumber) -> VerifiedCell:
    """Compare a printed number with the study's value."""
    values = list(reproduced.values.values())
    notes = reproduced.notes
    if cell.right != cell.printed:
        notes = (*notes, f"compared with {cell.right:g}, the mean of the scores beside it")
    if not reproduced.drawn and values:
        notes = (*notes, "every seed gives the same score")
    return VerifiedCell(
        cell=cell,
        ours=mean(values) if values else None,
        sd=sd(values) if len(values) > 1 else None,
        n=len(values),
        verdict=_verdict(cell, reproduced, values),
        reasons=reproduced.reasons or ((reproduced.absent,) if reproduced.absent else ()),
        notes=notes,
    )


def equal_after_rounding(ours: float, printed: float) -> bool:
    """Whether a value rounds to the printed number, with two decimals.

    A value halfway between two printed numbers equals both: the papers do not state how they
    round.
    """
    return math.isclose(ours, printed, rel_tol=0, abs_tol=_HALF)


def _verdict(cell: PaperCell, reproduced: ReproducedNumber, values: list[float]) -> CellVerdict:
    if not values:
        return "NOT RUN"
    if not reproduced.comparable:
        return "NOT COMPARABLE"
    if equal_after_rounding(mean(values), cell.right):
        return "MATCH"
    if not reproduced.drawn:  # more seeds would give the same number again
        return "MISS"
    if len(values) < MIN_SEEDS:
        return "NOT ENOUGH SEEDS"
    low, high = prediction_interval(values)
    return "WITHIN SEED NOISE" if low <= cell.right <= high else "MISS"


def prediction_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The interval that contains one more observation of the same kind with this probability.

    `mean -+ t * sd * sqrt(1 + 1/n)` with Student's t of n - 1 degrees of freedom, for normal
    values: Hahn and Meeker, Statistical Intervals (1991), chapter 4.

    Args:
        values: n observations, such as one score of n seeds; at least two.
        level: The probability, above 0 and below 1.

    Returns:
        The lower and the upper end.
    """
    n = len(values)
    half_width = float(stdtrit(n - 1, (1 + level) / 2)) * sd(values) * math.sqrt(1 + 1 / n)
    return mean(values) - half_width, mean(values) + half_width


@dataclass(frozen=True)
class Verification:
    """The comparison of a study with a paper.

    Attributes:
        cells: One line per printed number, in the paper's order.
        errata: Errors outside the tables' numbers; empty if one table was requested.
    """

    cells: tuple[VerifiedCell, ...]
    errata: tuple[str, ...]


def verify(study: StudyFrames, paper: Paper, table: int | None = None) -> Verification:
    """Compare a study with every number that a paper prints.

    Args:
        study: From `read_study`.
        paper: The paper's short name.
        table: Compare with this table only; None: with all.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    cells = paper_cells(paper, table)
    reproduction = Reproduction(study, paper)
    return Verification(
        cells=tuple(verified(cell, reproduction.number_for(cell)) for cell in cells),
        errata=() if table is not None else tuple(errata_without_cells(paper, cells)),
    )
