"""Every number that the papers print, and the space whose search measures it."""

from collections import Counter
from dataclasses import replace

import pytest

from tune_sentcl.analysis.papers.paper_results import (
    PAPERS,
    errata_without_cells,
    paper_cells,
    paper_errata,
    paper_results,
)
from tune_sentcl.config import TrialConfig
from tune_sentcl.data.tasks.evaluation_sets import TRUNCATED, load_sets
from tune_sentcl.data.tasks.sts_data import STS_FILES, STS_SUBSETS
from tune_sentcl.data.tasks.transfer_data import TASKS
from tune_sentcl.errors import ConfigError
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.space import load_space, space_names
from tune_sentcl.trial.inputs import measures_of

CELLS = [cell for paper in PAPERS for cell in paper_cells(paper)]


def measured(config: TrialConfig) -> set[tuple[str, str, str]]:
    """What a trial measures where every file is there."""
    asked = measures_of(config)
    sets = load_sets("toy", None, asked.suites, asked.protocols)
    truncated = tuple(task for task in sets.transfer if task.name in TRUNCATED)
    sets = replace(sets, data="root", truncated=truncated)
    wanted = expected_measurements(sets, asked)
    return {(found.task, found.split, found.protocol) for found in wanted}


def test_every_cell_that_a_method_here_can_fill_is_measured() -> None:
    has: dict[TrialConfig, set[tuple[str, str, str]]] = {}
    reached: Counter[str] = Counter()
    for cell in CELLS:
        if not cell.presets:
            continue
        needed = {(*number[:2], number.protocol) for number in cell.numbers}
        # The whole sets of MR and SUBJ stand beside the truncated ones.
        needed |= {(t, s, "senteval-5fold") for t, s, p in needed if p == "scl-paper-compat"}
        fitting = [has.setdefault(one, measured(one)) for one in cell.presets]
        assert any(needed <= found for found in fitting), cell
        reached[cell.paper] += 1
    # The other 64 numbers are ConIsI's copies from eight other systems.
    assert reached == {"SCL": 345, "ConIsI": 110, "CLSR": 75}


def test_spaces_name_rows_that_their_tables_have() -> None:
    tables = {(cell.paper, cell.table, cell.row) for cell in CELLS}
    for name in space_names():
        space = load_space(name)
        for row, config in space.paper_rows:
            papers = space.paper.split(", ")
            there = [(p, t.removeprefix(f"{p} "), row) for p in papers for t in space.tables]
            assert not tables.isdisjoint(there), (name, row)
            assert config in space.configurations


def rows_of(task: str, split: str, protocol: str) -> int:
    """How many rows the files of a task have."""
    if task in STS_SUBSETS:
        return sum(STS_SUBSETS[task].values())
    if task not in TASKS:
        return next(file[1] for key, file in STS_FILES.items() if key == (task, split))
    files = [*TASKS[task].values()][-1]  # the split that is scored comes last
    if protocol == "scl-paper-compat":
        return sum(file.rows if file.truncated is None else file.truncated for file in files)
    return sum(file.rows for file in files)


def test_a_number_has_the_rows_of_its_files() -> None:
    for number in {number for cell in CELLS for number in cell.numbers}:
        assert number.n == rows_of(number.task, number.split, number.protocol), number


def test_every_printed_number_is_a_cell_once() -> None:
    for paper in PAPERS:
        results = paper_results(paper)
        cells = [cell for cell in CELLS if cell.paper == paper]
        assert len({(c.table, c.row, c.task) for c in cells}) == len(cells)
        key = ["table", "task", "score"]
        printed = sorted((c.table, c.task, c.printed) for c in cells)
        assert printed == sorted(results[key].itertuples(index=False, name=None))


def test_errata_stand_by_the_numbers_that_they_are_about() -> None:
    by_text: dict[str, set[tuple[str, str, str]]] = {}
    for cell in CELLS:
        for text in cell.errata:
            by_text.setdefault(text, set()).add((cell.table, cell.row, cell.task))
    alone = {paper: errata_without_cells(paper, CELLS) for paper in PAPERS}
    assert len(by_text) + sum(map(len, alone.values())) == len(paper_errata())
    assert {paper: len(texts) for paper, texts in alone.items()} == {
        "SCL": 0,
        "ConIsI": 1,  # the size of a data set
        "CLSR": 1,  # the number of pairs
    }
    counts = {text.partition(": printed")[0]: len(cells) for text, cells in by_text.items()}
    assert counts["Table 3,4,5, all rows, MR"] == 12 + 5 + 6
    assert counts["Table 3 and 4, allpalln-lambda0.3-SCL, avg"] == 2
    assert counts["Table 2 and 3, 3all3n-lambda1.0-SCL, name"] == 6 + 9
    assert counts["Table 6, ConIsI-o1/o2, lambda"] == 4
    assert counts["Table 1 vs 2, CLSR-BERT-base, batch 512, STS-B-dev"] == 2 + 5
    assert counts["Table 3, BERT-large, avg"] == 1


def test_a_table_without_scores_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(ConfigError, match=r"--table.*'?3'?.*ConIsI with scores are 4, 5, 6, 7"):
        paper_cells("ConIsI", 3)
