"""What each verdict needs, on one small table at a time."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted_papers import Planted, moved, of_row, planted, write

from tune_sentcl.analysis.papers.paper_results import Paper, PaperCell, paper_cells
from tune_sentcl.analysis.papers.verification import VerifiedCell, equal_after_rounding, verify
from tune_sentcl.results.standings import Estimate


def cell_of(paper: Paper, table: int, row: str, task: str) -> PaperCell:
    return next(c for c in paper_cells(paper, table) if (c.row, c.task) == (row, task))


LAMBDA = cell_of("SCL", 6, "allpalln-lambda0.3-SCL", "STS14")
MR = cell_of("SCL", 4, "allpalln-lambda0.3-SCL", "MR")
MEAN = cell_of("CLSR", 4, "CLSR-BERT-base-mean", "STS-B-dev")
STS_B = cell_of("CLSR", 2, "CLSR-BERT-base-bs64", "STS-B-dev")
BASE = cell_of("CLSR", 1, "BERT-base", "STS-B-dev")
AVERAGE = cell_of("SCL", 6, "allpalln-lambda0.3-SCL", "avg")


def model(cell: PaperCell) -> Planted:
    number = cell.table.removeprefix("Table ")
    paper: Any = cell.paper
    one = of_row(planted(paper, int(number)), cell)
    return replace(one, numbers=dict.fromkeys(cell.numbers, cell.right))


def verdict(cell: PaperCell, *trials: Planted, path: Path) -> VerifiedCell:
    paper: Any = cell.paper
    table = int(cell.table.removeprefix("Table "))
    found = verify(write(path / "study", trials), paper, table)
    return next(one for one in found if one.cell == cell)


def test_a_number_in_the_seeds_interval_is_seed_noise_and_further_off_a_miss(
    tmp_path: Path,
) -> None:
    # Three seeds 0.1 apart: 4.303 x 0.1 x sqrt(4/3) = 0.497.
    near = verdict(LAMBDA, moved(model(LAMBDA), LAMBDA, 0.49), path=tmp_path / "near")
    far = verdict(LAMBDA, moved(model(LAMBDA), LAMBDA, 0.51), path=tmp_path / "far")
    assert (near.verdict, far.verdict) == ("WITHIN SEED NOISE", "MISS")
    assert near.delta == pytest.approx(0.49) and near.ours.n == far.ours.n == 3


@pytest.mark.parametrize("seeds", [(7,), (7, 8)])
def test_one_or_two_seeds_match_or_are_not_enough(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    """Two seeds 0.1 apart have an interval of 1.6 points either way, which holds most misses."""
    one = replace(model(LAMBDA), seeds=seeds)
    same = verdict(LAMBDA, one, path=tmp_path / "same")
    off = verdict(LAMBDA, moved(one, LAMBDA, 3.0), path=tmp_path / "off")
    assert (same.verdict, off.verdict) == ("MATCH", "NOT ENOUGH SEEDS")
    assert (off.ours.n, math.isnan(off.ours.sd)) == (len(seeds), len(seeds) == 1)


def test_where_nothing_is_drawn_one_run_is_enough_to_miss(tmp_path: Path) -> None:
    one = replace(model(BASE), seeds=(0,))
    found = verdict(BASE, moved(one, BASE, 0.02), path=tmp_path)
    assert found.verdict == "MISS"
    assert "every seed gives the same score" in "; ".join(found.footnotes)


def other(**changes: Any) -> Any:
    return lambda number: number._replace(**changes)


LOGREG = other(protocol="logreg-10fold")
ALL = other(aggregation="all")
COMPARABLE = {
    "other protocol": (
        MR,
        replace(model(MR).numbered(LOGREG), score={"n": 10_662}),
        (
            "MR is scored by the protocol logreg-10fold; the paper's by scl-paper-compat",
            "truncated file",
        ),
    ),
    "whole files": (
        MR,
        replace(model(MR).numbered(other(protocol="senteval-5fold")), score={"n": 10_662}),
        ("MR is scored on 10,662 rows; the paper's on 74 of a truncated file",),
    ),
    "toy sets": (
        LAMBDA,
        replace(model(LAMBDA), score={"data": "toy", "n": 24}),
        ("STS14 is scored on the toy sets",),
    ),
    "fewer rows": (
        LAMBDA,
        replace(model(LAMBDA), score={"n": 3_000}),
        ("STS14 is scored on 3,000 rows; the paper's on 3,750",),
    ),
    "other base model": (
        LAMBDA,
        model(LAMBDA).set(encoder__checkpoint="minilm").fact(checkpoint_fingerprint="abc"),
        ("base model: minilm (fingerprint abc); the paper's is google/bert_uncased_L-8",),
    ),
    "somebody's model of that name": (
        MEAN,
        model(MEAN).set(encoder__checkpoint="somebody/bert-base-uncased"),
        ("base model: somebody/bert-base-uncased",),
    ),
    "partial rows": (
        LAMBDA,
        model(LAMBDA)
        .set(data__source="snli-partial")
        .fact(data_source="nli/snli_train_partial.parquet"),
        ("training rows: nli/snli_train_partial.parquet; the paper's are all",),
    ),
    "pairs of lower scores": (
        STS_B,
        model(STS_B).set(data__min_score=2.0),
        ("training rows: pairs with a score of 2 or more; the paper's: 4 or more",),
    ),
    "other settings": (
        LAMBDA,
        model(LAMBDA).set(optimizer__lr=1e-4, encoder__share_duplicates=True),
        (
            "other hyperparameters: encoder.share_duplicates = true instead of false",
            "optimizer.lr = 0.0001",
        ),
    ),
}


@pytest.mark.parametrize("case", COMPARABLE)
def test_what_was_run_or_measured_otherwise_is_not_compared(case: str, tmp_path: Path) -> None:
    cell, one, words = COMPARABLE[case]
    found = verdict(cell, one, path=tmp_path)
    assert found.verdict == "NOT COMPARABLE", found
    assert found.ours.mean == pytest.approx(cell.right)
    assert [text for text in words if text not in "; ".join(found.footnotes)] == []
    if case == "toy sets":
        assert found.reasons == words, "their rows are not counted"


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        (MEAN, {"encoder__checkpoint": "/models/bert-base-uncased"}),
        (MEAN, {"encoder__checkpoint": "google-bert/bert-base-uncased"}),
        (MEAN, {"evaluation__every": 50}),
        (MR, {}),  # on truncated files, as in the paper
    ],
)
def test_the_same_by_another_name_is_compared(
    cell: PaperCell, changes: dict[str, Any], tmp_path: Path
) -> None:
    found = verdict(cell, model(cell).set(**changes), path=tmp_path)
    assert found.verdict == "MATCH", found
    assert ("truncated to 74 sentences" in "; ".join(found.footnotes)) == (cell is MR)


def test_weights_are_known_by_their_fingerprint_too(tmp_path: Path) -> None:
    cls = cell_of("CLSR", 4, "CLSR-BERT-base-cls", "STS-B-dev")
    named = model(cls).fact(checkpoint_fingerprint="same")
    moved_away = model(MEAN).set(encoder__checkpoint="copy").fact(checkpoint_fingerprint="same")
    assert verdict(MEAN, named, moved_away, path=tmp_path).verdict == "MATCH"


def test_a_trial_of_another_row_answers_no_row_beside_it(tmp_path: Path) -> None:
    found = verify(write(tmp_path / "study", [model(BASE)]), "CLSR", 1)
    assert [one.cell.row for one in found if one.verdict != "NOT RUN"] == ["BERT-base"]


def test_seeds_that_were_measured_otherwise_are_left_out_beside_others(tmp_path: Path) -> None:
    otherwise = replace(moved(model(LAMBDA), LAMBDA, 9.0).numbered(ALL), seeds=(3,))
    found = verdict(LAMBDA, model(LAMBDA), otherwise, path=tmp_path)
    assert (found.verdict, found.ours.n) == ("MATCH", 3)


NO_VARIANCE = {"value": None, "reason": "no variance"}


@pytest.mark.parametrize(
    ("cell", "trial", "words"),
    [
        (
            LAMBDA,
            model(LAMBDA).fact(status="failed", error_type="NonFiniteError"),
            "the trials of this configuration failed (NonFiniteError)",
        ),
        (LAMBDA, model(LAMBDA).fact(status="pruned"), "were stopped at the end of a stage"),
        (AVERAGE, model(LAMBDA), "these scores are not measured: STS12, STS13, STS15, STS16"),
        (LAMBDA, replace(model(LAMBDA), score=NO_VARIANCE), "STS14 (no variance)"),
        (LAMBDA, replace(model(LAMBDA), seeds=()), "the study has no trial of this configuration"),
    ],
)
def test_a_number_without_a_score_is_not_run(
    cell: PaperCell, trial: Planted, words: str, tmp_path: Path
) -> None:
    found = verdict(cell, trial, path=tmp_path)
    assert (found.verdict, found.ours.n) == ("NOT RUN", 0)
    assert words in "; ".join(found.footnotes)


def test_of_two_configurations_that_answer_the_one_with_more_seeds_does(tmp_path: Path) -> None:
    few = replace(moved(model(LAMBDA), LAMBDA, 5.0), seeds=(0,)).fact(data_fingerprint="other")
    found = verdict(LAMBDA, few, model(LAMBDA), path=tmp_path)
    assert (found.verdict, found.ours.n) == ("MATCH", 3)
    assert "1 other configurations of the study" in "; ".join(found.footnotes)


@pytest.mark.parametrize(
    ("ours", "printed", "equal"),
    [
        (84.925, 84.93, True),  # halfway it may have been printed either way
        (84.9249, 84.93, False),
        (84.9251, 84.92, False),
        (2.675, 2.68, True),  # a float a little below its decimal
        (80.4, 80.0, False),  # a zero that was not printed is a digit all the same
    ],
)
def test_equal_after_rounding_counts_two_decimals_and_both_halves(
    ours: float, printed: float, equal: bool
) -> None:
    assert equal_after_rounding(ours, printed) is equal


def test_a_wrong_average_is_compared_with_the_right_one() -> None:
    cell = cell_of("CLSR", 3, "BERT-large", "avg")
    right, wrong = (VerifiedCell(cell, Estimate.of([v]), drawn=False) for v in (55.51, 57.51))
    assert (right.verdict, wrong.verdict) == ("MATCH", "MISS")
    assert right.cell.printed == 57.51 and "compared with 55.51" in "; ".join(right.footnotes)
