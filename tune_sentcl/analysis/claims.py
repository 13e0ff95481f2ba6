"""What the papers' texts claim, held against a study's seeds.

A claim is one or several comparisons of two rows of a table. Of each, seeds are paired: what
differs is looked at within a seed, and the interval is Student's t of those differences.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from tune_sentcl.analysis.answers import Answer
from tune_sentcl.analysis.lines import lines_of
from tune_sentcl.analysis.paper_results import Paper, paper_claims
from tune_sentcl.analysis.statistics import mean, prediction_interval, sd

ClaimVerdict = Literal["HOLDS", "DOES NOT HOLD", "NOT ESTABLISHED"]

Find = Callable[[str, str, str], Answer]
"""A study's answer to the number of a table, a row and a task."""

_AND = " + "

_ROUNDED = 0.01 + 1e-9
"""What the difference of two printed numbers may be off by."""


@dataclass(frozen=True)
class Comparison:
    """One comparison of a claim, and what a study says to it.

    Attributes:
        left: The side that is said to be higher: a row, or several joined by ` + `.
        right: The other one.
        task: The task of both.
        claimed: By how much; None where that is not said.
        ours: The mean of our differences, left less right; None where there is none.
        sd: Their standard deviation; None of fewer than two.
        n: The seeds that both sides have.
        verdict: What it comes to.
        why: Why it does not hold or is not established.
    """

    left: str
    right: str
    task: str
    claimed: float | None
    ours: float | None
    sd: float | None
    n: int
    verdict: ClaimVerdict
    why: str = ""


@dataclass(frozen=True)
class VerifiedClaim:
    """One claim and what a study says to it.

    Attributes:
        name: Its name in `paper_claims`.
        table: Whose numbers it is about.
        place: Where the paper says it.
        quote: In the paper's words.
        statement: In ours.
        most: Whether it is enough that most comparisons hold.
        comparisons: What it rests on.
        remarks: Where the paper's own numbers say otherwise.
    """

    name: str
    table: str
    place: str
    quote: str
    statement: str
    most: bool
    comparisons: tuple[Comparison, ...]
    remarks: tuple[str, ...]

    @property
    def verdict(self) -> ClaimVerdict:
        """Holds where all do, or most; does not where one does not, or half of them."""
        found = [comparison.verdict for comparison in self.comparisons]
        holds, fails = found.count("HOLDS"), found.count("DOES NOT HOLD")
        if holds > len(found) / 2 if self.most else holds == len(found):
            return "HOLDS"
        if fails >= len(found) / 2 if self.most else fails:
            return "DOES NOT HOLD"
        return "NOT ESTABLISHED"

    @property
    def only(self) -> Comparison | None:
        """The comparison of a claim that has but one."""
        return self.comparisons[0] if len(self.comparisons) == 1 else None

    @property
    def note(self) -> str:
        """Place, quote and what keeps the claim from holding, in one text."""
        parts = [f'{self.place}: "{self.quote}"']
        if self.only is None:
            found = [comparison.verdict for comparison in self.comparisons]
            counts = (f"{found.count(v)} {v}" for v in dict.fromkeys(found))
            parts.append(f"of {len(found)} comparisons {', '.join(counts)}")
        grouped: dict[str, list[str]] = {}
        for one in self.comparisons:
            if one.why:
                grouped.setdefault(one.why, []).append(f"{one.left} over {one.right}")
        for why, names in grouped.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            parts.append(why if self.only else f"{names[0]}{more}: {why}")
        return "; ".join((*parts, *self.remarks))


def verify_claims(find: Find, paper: Paper, table: int | None = None) -> list[VerifiedClaim]:
    """Hold a study against what a paper's text claims.

    Args:
        find: The study's answers.
        paper: The paper's short name.
        table: Only claims about this table's numbers.
    """
    lines = lines_of(paper_claims(paper))
    about = [line for line in lines if table is None or line["table"] == f"Table {table}"]
    return [
        _verified(find, list(group)) for _, group in groupby(about, lambda line: line["claim"])
    ]


def _verified(find: Find, lines: Sequence[Mapping[str, Any]]) -> VerifiedClaim:
    first = lines[0]
    remarks = (
        f"{line['left']} over {line['right']}: {line['remark']}"
        for line in lines
        if "remark" in line
    )
    return VerifiedClaim(
        name=first["claim"],
        table=first["table"],
        place=first["place"],
        quote=first["quote"],
        statement=first["statement"],
        most=first["holds_for"] == "most",
        comparisons=tuple(_compared(find, line) for line in lines),
        remarks=tuple(remarks),
    )


def _compared(find: Find, line: Mapping[str, Any]) -> Comparison:
    claimed = line.get("difference")
    sides = {
        side: {row: find(line["table"], row, line["task"]) for row in line[side].split(_AND)}
        for side in ("left", "right")
    }
    rows = {**sides["left"], **sides["right"]}
    lacking = {_why_not(found) for found in rows.values() if not found.comparable}
    left, right = (list(found.values()) for found in sides.values())
    differences = [] if lacking else _differences(left, right)
    drawn = any(found.drawn for found in rows.values())
    verdict, why = _judged(differences, claimed, drawn)
    return Comparison(
        left=line["left"],
        right=line["right"],
        task=line["task"],
        claimed=claimed,
        ours=mean(differences) if differences else None,
        sd=sd(differences) if len(differences) > 1 else None,
        n=len(differences),
        verdict=verdict,
        why=" and ".join(sorted(lacking)) or why,
    )


def _why_not(answer: Answer) -> str:
    return "a side cannot be compared" if answer.values else "a side was not run"


def _differences(left: Sequence[Answer], right: Sequence[Answer]) -> list[float]:
    """Left less right, one a seed that all of them have; one where no seed has a part in any."""
    seeds = [set(answer.values) for answer in (*left, *right) if answer.drawn]
    if not seeds:
        return [_at(left, None) - _at(right, None)]
    return [_at(left, seed) - _at(right, seed) for seed in sorted(set.intersection(*seeds))]


def _at(answers: Iterable[Answer], seed: int | None) -> float:
    return mean(
        [
            answer.values[seed] if answer.drawn and seed is not None else _overall(answer)
            for answer in answers
        ]
    )


def _overall(answer: Answer) -> float:
    return mean(list(answer.values.values()))


def _judged(
    differences: Sequence[float], claimed: float | None, drawn: bool
) -> tuple[ClaimVerdict, str]:
    if not differences:
        return "NOT ESTABLISHED", "there is no seed that both have"
    if drawn and len(differences) == 1:
        return "NOT ESTABLISHED", "one seed says nothing of the others"
    found = mean(differences)
    (low, high), (least, most) = _intervals(differences) if drawn else ((found, found),) * 2
    shown = f"we find {found:+.2f}"
    if high <= 0:
        return "DOES NOT HOLD", shown
    least, most = min(least, found - _ROUNDED), max(most, found + _ROUNDED)
    if claimed is not None and not least <= claimed <= most:
        return "DOES NOT HOLD", f"{shown}, not {claimed:+.2f}"
    if low > 0:
        return "HOLDS", ""
    return "NOT ESTABLISHED", f"{shown}, and the mean may lie from {low:+.2f} to {high:+.2f}"


def _intervals(differences: Sequence[float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where their mean lies with 95 %, and where one more lies.

    Both are Student's; the mean's is by the root of n + 1 the narrower.
    """
    low, high = prediction_interval(differences)
    found = mean(differences)
    reach = (high - low) / 2 / math.sqrt(len(differences) + 1)
    return (found - reach, found + reach), (low, high)
