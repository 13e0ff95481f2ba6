"""A paper and a study side by side: its numbers, and what is wrong with it."""

from dataclasses import dataclass

from tune_sentcl.analysis.answers import Answers
from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.paper_cells import errata_without_cells, paper_cells
from tune_sentcl.analysis.paper_results import Paper
from tune_sentcl.analysis.verdicts import VerifiedCell, verified


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
