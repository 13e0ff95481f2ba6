"""The stopping rule a second time, from scratch at each point, in plain words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tune_sentcl.tuning.rung_spacing import RungSpacing


class Point(NamedTuple):
    """One evaluation point of one trial."""

    trial: str
    rows: int
    score: float
    attempt: int = 0


def restated(spacing: RungSpacing, before: Sequence[Point], point: Point) -> bool:
    """Whether a trial goes on at a point, after all those before it: in plain words, from scratch.

    Every point counts at the highest rung that its rows reach, unless its trial counted at that
    rung or a higher one before. A trial that begins again is compared again, and its new score
    replaces the old one at each rung.
    """
    points = [*before, point]
    if not _counts(spacing, points, len(before)):
        return True
    rung = _rung_of(spacing, point.rows)
    return _is_best(spacing, rung, _at(spacing, points, rung), point.trial)


def restated_levels(
    spacing: RungSpacing, points: Sequence[Point]
) -> dict[str, tuple[int, float, bool]]:
    """The rung at which each trial stops if all points count at once, its score, and whether it
    goes on: the first rung at which it is not among the best, or its highest one."""
    found = {}
    for trial in {point.trial for point in points}:
        for rung in sorted({_rung_of(spacing, point.rows) for point in points} - {0}):
            here = _at(spacing, points, rung)
            if trial in here:
                found[trial] = (rung, here[trial], _is_best(spacing, rung, here, trial))
                if not found[trial][2]:
                    break
    return found


def _rung_of(spacing: RungSpacing, rows: int) -> int:
    above = [2 * spacing.grace * spacing.reduction**n for n in range(40)]
    rungs = [spacing.grace, *above]
    return max((r for r in rungs if r <= min(rows, spacing.last or 10**12)), default=0)


def _counts(spacing: RungSpacing, points: Sequence[Point], place: int) -> bool:
    which = (points[place].trial, points[place].attempt)
    own = [_rung_of(spacing, p.rows) for p in points[:place] if (p.trial, p.attempt) == which]
    return _rung_of(spacing, points[place].rows) > max(own, default=0)


def _at(spacing: RungSpacing, points: Sequence[Point], rung: int) -> dict[str, float]:
    return {
        p.trial: p.score
        for n, p in enumerate(points)
        if _rung_of(spacing, p.rows) == rung and _counts(spacing, points, n)
    }


def _is_best(spacing: RungSpacing, rung: int, here: dict[str, float], trial: str) -> bool:
    """The better half goes on at the first rung; two rungs let through 1 in reduction squared."""
    lenient = {spacing.grace: 2, 2 * spacing.grace: math.floor(spacing.reduction**2 / 2)}
    better = sum(score > here[trial] for score in here.values())
    return better < max(1, math.floor(len(here) / lenient.get(rung, spacing.reduction)))
