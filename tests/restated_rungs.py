"""The stopping rule a second time, from scratch at each point, in plain words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tune_sentcl.tuning.rungs import RungSpacing


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
    last = spacing.last or 10**12
    rungs = [spacing.grace * spacing.reduction**n for n in range(40)]

    def rung_of(rows: int) -> int:
        return max((r for r in rungs if r <= min(rows, last)), default=0)

    def counts(place: int, points: Sequence[Point]) -> bool:
        which = (points[place].trial, points[place].attempt)
        own = [rung_of(p.rows) for p in points[:place] if (p.trial, p.attempt) == which]
        return rung_of(points[place].rows) > max(own, default=0)

    points = [*before, point]
    if not counts(len(before), points):
        return True
    rung = rung_of(point.rows)
    at = [p for n, p in enumerate(points) if rung_of(p.rows) == rung and counts(n, points)]
    here = {p.trial: p for p in at}.values()
    better = sum(p.score > point.score for p in here)
    return better < max(1, math.floor(len(here) / spacing.reduction))
