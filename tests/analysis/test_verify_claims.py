"""The claims of the papers' texts: that they are what the papers say, and how they are judged."""

import re
from pathlib import Path
from typing import Any

import pytest

from tune_sentcl.analysis.answers import Answer
from tune_sentcl.analysis.claims import Comparison, VerifiedClaim, verify_claims
from tune_sentcl.analysis.lines import lines_of
from tune_sentcl.analysis.paper_cells import paper_cells
from tune_sentcl.analysis.paper_results import PAPERS, paper_claims

PRINTED = {
    (cell.row.paper, cell.row.table, cell.row.name, cell.task): cell.right
    for paper in PAPERS
    for cell in paper_cells(paper)
}


def side(line: dict[str, Any], name: str) -> float:
    rows = line[name].split(" + ")
    key = (line["paper"], line["table"])
    return sum(PRINTED[(*key, row, line["task"])] for row in rows) / len(rows)


@pytest.mark.parametrize("line", lines_of(paper_claims()), ids=lambda line: line["claim"])
def test_a_claim_is_what_the_paper_s_numbers_say_or_remarks_that_it_is_not(
    line: dict[str, Any],
) -> None:
    difference = side(line, "left") - side(line, "right")
    told = difference > 0
    if "difference" in line:
        told = told and line["difference"] == pytest.approx(difference, abs=0.0101)
    assert told is not ("remark" in line), difference


def test_claims_have_names_places_quotes_and_one_table_each() -> None:
    claims = paper_claims()
    needed = claims.drop(columns=["difference", "remark"])
    assert needed.notna().all(axis=None)
    assert set(claims["holds_for"]) == {"all", "most"}
    for name, lines in claims.groupby("claim"):
        shared = ["paper", "place", "quote", "statement", "holds_for", "table"]
        assert (lines[shared].nunique() == 1).all(), name
    assert claims.groupby("paper")["claim"].nunique().to_dict() == {
        "CLSR": 7,
        "ConIsI": 13,
        "SCL": 20,
    }


def answers(**known: Any) -> Any:
    """A study in which the rows of ConIsI's Table 5 have these values of their seeds."""
    rows = {
        "ConIsI-s-BERT-base": "both",
        "ConIsI-s-BERT-base w/o interactive loss": "contrast",
        "ConIsI-s-BERT-base w/o contrastive loss": "interaction",
        "SimCSE-BERT-base": "simcse",
    }

    def find(table: str, row: str, task: str) -> Answer:
        found = known.get(rows[row], ())
        if isinstance(found, Answer):
            return found
        return Answer(dict(enumerate(found)), absent="" if found else "not run")

    return find


def claim(name: str, **known: Any) -> VerifiedClaim:
    found = verify_claims(answers(**known), "ConIsI", 5)
    assert [one.name for one in found] == ["ConIsI-4", "ConIsI-5", "ConIsI-6"]
    return next(one for one in found if one.name == name)


@pytest.mark.parametrize(
    ("both", "contrast", "verdict", "why"),
    [
        ((78.3, 78.4, 78.2), (77.0, 77.2, 76.9), "HOLDS", ""),  # by 1.27 +- 0.06
        ((77.0, 77.2, 76.9), (78.3, 78.4, 78.2), "DOES NOT HOLD", "-1.27"),
        ((77.5, 77.7, 77.4), (77.0, 77.2, 76.9), "DOES NOT HOLD", "+0.50, not +1.30"),
        ((77.0, 80.0, 77.0), (77.0, 77.2, 76.9), "NOT ESTABLISHED", "mean may lie from"),
        ((78.3,), (77.0,), "NOT ESTABLISHED", "one seed"),
        ((78.3,), (), "NOT ESTABLISHED", "a side was not run"),
        ((77.0, 77.0), (77.0, 77.0), "DOES NOT HOLD", "+0.00"),
    ],
)
def test_a_claim_of_a_difference(both: Any, contrast: Any, verdict: str, why: str) -> None:
    found = claim("ConIsI-4", both=both, contrast=contrast)
    assert found.verdict == verdict, found
    assert why in found.note and "causing a drop of 1.30%" in found.note


def test_seeds_are_paired() -> None:
    """They differ by ten points between seeds, and by 1.3 within each."""
    both = (70.0, 75.0, 80.0)
    found = claim(
        "ConIsI-4",
        both=both,
        contrast=[v - 1.3 - d for v, d in zip(both, (0, 0.1, -0.1), strict=True)],
    )
    assert found.verdict == "HOLDS"
    assert found.only is not None and found.only.n == 3


def test_only_seeds_that_both_sides_have_count() -> None:
    left, right = Answer({1: 78.3, 2: 78.4}), Answer({2: 77.1, 3: 77.0})
    found = claim("ConIsI-4", both=left, contrast=right)
    assert found.only is not None and found.only.n == 1
    apart = claim("ConIsI-4", both=left, contrast=Answer({5: 77.0}))
    assert "no seed that both have" in apart.note


def test_a_side_without_seeds_stands_against_each_of_the_other_s() -> None:
    fixed = Answer({0: 77.0}, drawn=False)
    found = claim("ConIsI-4", both=(78.2, 78.4), contrast=fixed)
    assert found.only is not None and (found.only.n, found.verdict) == (2, "HOLDS")
    both_fixed = claim("ConIsI-4", both=Answer({0: 78.3}, drawn=False), contrast=fixed)
    assert both_fixed.verdict == "HOLDS"


def test_what_cannot_be_compared_establishes_nothing() -> None:
    other = Answer({0: 78.3, 1: 78.4, 2: 78.2}, reasons=("base model: minilm",))
    found = claim("ConIsI-4", both=other, contrast=(77.0, 77.2, 76.9))
    assert found.verdict == "NOT ESTABLISHED" and "a side cannot be compared" in found.note


def whole(most: bool, *verdicts: Any) -> str:
    parts = tuple(Comparison("a", "b", "avg", None, None, None, 0, v) for v in verdicts)
    return VerifiedClaim("x", "Table 1", "", "", "", most, parts, ()).verdict


def test_a_claim_of_several_comparisons() -> None:
    yes, no, open_ = "HOLDS", "DOES NOT HOLD", "NOT ESTABLISHED"
    assert whole(False, yes, yes) == yes
    assert whole(False, yes, no, open_) == no
    assert whole(False, yes, open_) == open_
    assert whole(True, yes, yes, no) == yes
    assert whole(True, yes, no) == no
    assert whole(True, yes, open_, open_) == open_


@pytest.mark.real
def test_quotes_stand_in_the_papers(real_data: Path) -> None:
    names = {"SCL": "scl.txt", "ConIsI": "consisi.txt", "CLSR": "clsr.txt"}
    texts = {
        paper: plain_text((real_data.parent / "papers" / name).read_text(encoding="utf-8"))
        for paper, name in names.items()
    }
    for line in lines_of(paper_claims()):
        assert plain_text(line["quote"]) in texts[line["paper"]], line["claim"]


def plain_text(text: str) -> str:
    """Letters and digits alone: the papers' texts have formulas as TeX."""
    return re.sub(r"[^a-z0-9]", "", text.replace("λ", "lambda").lower())
