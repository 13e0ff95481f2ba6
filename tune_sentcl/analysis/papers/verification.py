"""A paper and a study side by side: its numbers, and what is wrong with it."""

import math
from dataclasses import dataclass
from typing import Literal

from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.papers.answers import Answer, Answers
from tune_sentcl.analysis.papers.paper_cells import PaperCell, errata_without_cells, paper_cells
from tune_sentcl.analysis.papers.paper_results import Paper
from tune_sentcl.analysis.statistics import mean, prediction_interval, sd

CellVerdict = Literal[
    "MATCH", "WITHIN SEED NOISE", "NOT ENOUGH SEEDS", "MISS", "NOT COMPARABLE", "NOT RUN"
]

_HALF = 0.005 + 1e-9
"""Half a unit of the second decimal, which is the papers' last, and what floats are wrong by."""


@dataclass(frozen=True)
class VerifiedCell:
    """One printed number and what a study says to it.

    Attributes:
        cell: The number.
        ours: The mean of our seeds, times 100; None where there is no number.
        sd: Their standard deviation; None of fewer than two.
        n: How many they are.
        verdict: What the two come to.
        reasons: Why they cannot be compared, or why there is no number.
        notes: What else a reader should know.
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
        """Ours less the paper's, where the paper has an average wrong less the right one."""
        return None if self.ours is None else self.ours - self.cell.right

    @property
    def note(self) -> str:
        """Reasons, notes and errata in one text."""
        errata = (f"erratum: {text}" for text in self.cell.errata)
        return "; ".join((*self.reasons, *self.notes, *errata))


def verified(cell: PaperCell, answer: Answer) -> VerifiedCell:
    """What a printed number and a study's answer come to."""
    values = list(answer.values.values())
    notes = answer.notes
    if cell.right != cell.printed:
        notes = (*notes, f"compared with {cell.right:g}, the mean of the scores beside it")
    if not answer.drawn and values:
        notes = (*notes, "nothing is drawn: a seed has no part in it")
    return VerifiedCell(
        cell=cell,
        ours=mean(values) if values else None,
        sd=sd(values) if len(values) > 1 else None,
        n=len(values),
        verdict=_verdict(cell, answer, values),
        reasons=answer.reasons or ((answer.absent,) if answer.absent else ()),
        notes=notes,
    )


def equal_after_rounding(ours: float, printed: float) -> bool:
    """Whether a number may have been printed so, with two decimals.

    Halfway between two printed numbers it may have been either: papers round up, to even, or as
    their floats fall, and none says how.
    """
    return math.isclose(ours, printed, rel_tol=0, abs_tol=_HALF)


def _verdict(cell: PaperCell, answer: Answer, values: list[float]) -> CellVerdict:
    if not values:
        return "NOT RUN"
    if not answer.comparable:
        return "NOT COMPARABLE"
    if equal_after_rounding(mean(values), cell.right):
        return "MATCH"
    if not answer.drawn:  # more seeds would give the same number again
        return "MISS"
    if len(values) == 1:
        return "NOT ENOUGH SEEDS"
    low, high = prediction_interval(values)
    return "WITHIN SEED NOISE" if low <= cell.right <= high else "MISS"


@dataclass(frozen=True)
class Verification:
    """What a study says to a paper.

    Attributes:
        cells: One line a printed number, in the paper's order.
        errata: What is wrong in it beside the numbers of its tables; empty for one table.
    """

    cells: tuple[VerifiedCell, ...]
    errata: tuple[str, ...]


def verify(study: StudyFrames, paper: Paper, table: int | None = None) -> Verification:
    """Hold a study against every number that a paper prints.

    Args:
        study: As `read_study` gives it.
        paper: The paper's short name.
        table: Only this table's numbers.

    Raises:
        ConfigError: There is no such paper, or its table has no scores.
    """
    cells = paper_cells(paper, table)
    answers = Answers(study, paper)
    return Verification(
        cells=tuple(verified(cell, answers.to(cell)) for cell in cells),
        errata=() if table is not None else tuple(errata_without_cells(paper, cells)),
    )
