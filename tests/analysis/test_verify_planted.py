"""Studies that hold a paper's own numbers: each is found, and one that was moved is missed."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_papers import moved, of_row, planted, verdicts, write

from tune_sentcl.analysis.papers.paper_results import Paper, PaperCell, paper_cells
from tune_sentcl.analysis.papers.verification import verify


def draws(cell: PaperCell) -> bool:
    """Whether a method here fills a cell by training."""
    return any(preset.method.takes_steps for preset in cell.presets)


@pytest.mark.parametrize(("paper", "table"), [("SCL", 6), ("ConIsI", 6), ("CLSR", 2)])
def test_a_paper_s_own_numbers_match_and_a_moved_one_is_the_only_miss(
    paper: Any, table: int, tmp_path: Path
) -> None:
    trials = planted(paper, table)
    found = verify(write(tmp_path / "same", trials), paper, table)
    assert {o.verdict for o in found if o.cell.presets} == {"MATCH"}
    assert {o.verdict for o in found if not o.cell.presets} <= {"NOT RUN"}
    same = verdicts(found)
    assert len(same) == len(paper_cells(paper, table))

    cell = next(o.cell for o in found if draws(o.cell))
    one = of_row(trials, cell)
    others = [trial for trial in trials if trial is not one]
    study = write(tmp_path / "moved", [*others, moved(one, cell, -1.0)])
    after = verify(study, paper, table)
    (missed,) = (o for o in after if o.verdict == "MISS")
    assert missed.cell == cell
    assert missed.ours.n == 3 and missed.ours.sd == pytest.approx(0.1)
    assert missed.delta == pytest.approx(-1.0, abs=0.006)
    changed = {key for key, verdict in verdicts(after).items() if verdict != same[key]}
    # An average moves with its tasks, here by less than the seeds spread.
    averages = {key for key in changed if key[2] == "avg" and cell.task != "avg"}
    assert changed - averages == {(cell.table, cell.row, cell.task)}
    assert {key[:2] for key in averages} <= {(cell.table, cell.row)}
    assert {verdicts(after)[key] for key in averages} <= {"WITHIN SEED NOISE"}


def test_fresh_seeds_have_no_part_in_a_number(tmp_path: Path) -> None:
    trials = planted("SCL", 6)
    alone = write(tmp_path / "alone", trials)
    cell = next(o.cell for o in verify(alone, "SCL", 6) if draws(o.cell))
    one = of_row(trials, cell)
    fresh = replace(moved(one, cell, -9.0), seeds=(1000, 1001)).fact(origin="confirm")
    found = [verify(study, "SCL", 6) for study in (alone, write(tmp_path / "b", [*trials, fresh]))]
    numbers = [[(o.ours, o.verdict) for o in each] for each in found]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(("paper", "lines"), [("SCL", 345), ("ConIsI", 174), ("CLSR", 75)])
def test_every_number_has_a_line_and_a_paper_matches_itself(
    paper: Paper, lines: int, tmp_path: Path
) -> None:
    found = verify(write(tmp_path / "study", planted(paper)), paper)
    assert len(found) == lines
    counts = Counter(o.verdict for o in found)
    if paper == "CLSR":  # it prints one model twice: its batch of 512 on STS-B has two scores
        assert counts == {"MATCH": 74, "MISS": 1}
    else:
        assert set(counts) <= {"MATCH", "NOT RUN"}
