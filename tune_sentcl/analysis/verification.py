"""A paper and a study side by side: its numbers, its claims, and what is wrong with it."""

from dataclasses import dataclass

from tune_sentcl.analysis.answers import Answers
from tune_sentcl.analysis.claims import VerifiedClaim, verify_claims
from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.paper_cells import errata_without_cells, paper_cells
from tune_sentcl.analysis.paper_results import Paper
from tune_sentcl.analysis.verdicts import VerifiedCell, verified


@dataclass(frozen=True)
class Verification:
    """What a study says to a paper.

    Attributes:
        cells: One line a printed number, in the paper's order.
        claims: One line a claim of its text.
        errata: What is wrong in it beside the numbers of its tables; empty for one table.
    """

    cells: tuple[VerifiedCell, ...]
    claims: tuple[VerifiedClaim, ...]
    errata: tuple[str, ...]


def verify(study: StudyFrames, paper: Paper, table: int | None = None) -> Verification:
    """Hold a study against every number that a paper prints, and what its text says of them.

    Args:
        study: As `read_study` gives it.
        paper: The paper's short name.
        table: Only this table's numbers, and the claims about them.

    Raises:
        ConfigError: There is no such paper, or its table has no scores.
    """
    cells = paper_cells(paper, table)
    answers = Answers(study, paper)
    found = {(cell.row.table, cell.row.name, cell.task): answers.to(cell) for cell in cells}
    return Verification(
        cells=tuple(
            verified(cell, found[cell.row.table, cell.row.name, cell.task]) for cell in cells
        ),
        claims=tuple(verify_claims(lambda *key: found[key], paper, table)),
        errata=() if table is not None else tuple(errata_without_cells(paper, cells)),
    )
