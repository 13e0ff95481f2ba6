"""Where the first rung lies, by the curves of trials that were trained whole."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Curve = Sequence[tuple[int, float]]
"""The evaluation points of a whole training: training rows and score, the last one at its end."""

NUM_CURVES = 3
"""Whole trainings that decide where the first rung lies."""

KEPT = 0.9
"""The share of the final best that the better half at the first rung must contain."""

MANY = 8
"""Curves that may move the first rung as far as `LATEST`."""

LATEST = 1 / 3
"""No first rung lies behind this share of the shortest whole training: it would save little."""

STRETCH = 3
"""Few curves move the first rung at most to so many times its earliest rows. Three curves that
all failed to learn say nothing, and a late first rung costs more than a wrong early one."""


@dataclass(frozen=True)
class FirstRung:
    """The first rung, and why it lies there.

    Attributes:
        rows: Its training rows.
        reason: A text for the user.
    """

    rows: int
    reason: str

    def __str__(self) -> str:
        return f"first rung at {self.rows:,} rows: {self.reason}"


def first_rung(curves: Sequence[Curve], earliest: int) -> FirstRung:
    """The earliest point whose better half contains enough of the best tenth at the end.

    Args:
        curves: At least one curve.
        earliest: Rows below which no rung may lie.
    """
    num_best, num_top = math.ceil(len(curves) / 10), math.ceil(len(curves) / 2)
    final_best = _best([curve[-1][1] for curve in curves], num_best)
    latest = int(LATEST * min(curve[-1][0] for curve in curves))
    latest = max(earliest, latest if len(curves) >= MANY else min(latest, STRETCH * earliest))
    points = {rows for curve in curves for rows, _ in curve[:-1] if earliest <= rows <= latest}
    for rows in sorted(points | {earliest}):
        top = _best([_score_at(curve, rows) for curve in curves], num_top)
        if len(final_best & top) >= KEPT * num_best:
            share = f"the best {num_top} there hold {len(final_best & top)} of the final best"
            return FirstRung(rows, f"{share} {num_best} of {len(curves)} whole trainings")
    return FirstRung(
        latest, f"no earlier point of {len(curves)} whole trainings predicts the best"
    )


def _score_at(curve: Curve, rows: int) -> float:
    """The score at the first point that has seen so many rows; at the end without one."""
    return next((score for seen, score in curve if seen >= rows), curve[-1][1])


def _best(scores: Sequence[float], count: int) -> set[int]:
    """The places of the highest scores; of ties the first."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return set(order[:count])
