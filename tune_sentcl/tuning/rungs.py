"""Early stopping: trials are compared at rungs, which count training rows.

The rule is the stopping variant of asynchronous successive halving (Li et al., "A System for
Massively Parallel Hyperparameter Tuning", MLSys 2020; Ray Tune has it too). A trial that reaches a
rung goes on if it is among the best of all that have reached it so far. No stopped trial resumes.
Rungs count rows, not steps: after equally many steps, batches of 512 hold 16 times the rows of
batches of 32.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.correlation import spearman
from tune_sentcl.tuning.first_rung import NUM_CURVES, FirstRung, first_rung
from tune_sentcl.tuning.rung_spacing import RungSpacing


@dataclass(frozen=True)
class RungReport:
    """The trials that a rung compared and stopped, and how well its scores predict the objectives.

    Attributes:
        rows: Training rows of the rung.
        reached: Trials that were compared there.
        stopped: Trials that it stopped.
        finished: Compared trials that went on and finished.
        rank_correlation: Spearman's correlation, -1 to 1, of the scores at the rung and the
            objectives. None for fewer than three finished trials, or if all are equal. It
            lacks the stopped trials, so it is closer to 0 than the true correlation.
    """

    rows: int
    reached: int
    stopped: int
    finished: int
    rank_correlation: float | None


class Level(NamedTuple):
    """The highest rung that a trial reaches if all scores so far decide.

    Attributes:
        rows: Training rows of the rung.
        score: The trial's score there.
        goes_on: Whether the trial is among the best there.
    """

    rows: int
    score: float
    goes_on: bool


class Rungs:
    """The scores of a search's trials at its rungs.

    The first seeds of all configurations are compared. Those that the sampler drew may be stopped;
    those of the grid and of configurations that it was given are rivals only. A trial counts once,
    at the highest rung that it reached with an evaluation point, by its score at that point. Of n
    trials at a rung the best n / `RungSpacing.reduction_at`, rounded down but at least one, go on,
    and so do ties with the last of these. Only the points and their order decide, so a resumed
    search adds the stored points: each trial's points in their order, the trials in any order.

    A first rung that is not known lies at `grace` until the curves of `NUM_CURVES` whole trainings
    say that it lies higher.

    Attributes:
        spacing: The rungs.
    """

    def __init__(self, spacing: RungSpacing) -> None:
        self.spacing = spacing
        self._points: dict[str, list[tuple[int, float]]] = {}
        self._ended: dict[str, None] = {}
        self._scores: dict[int, dict[str, float]] = {}
        self._highest_rung: dict[str, tuple[int, int]] = {}
        self._rows_seen: dict[str, int] = {}
        self._restarted: set[str] = set()

    def add_ends(self, trial_ids: Iterable[str]) -> FirstRung | None:
        """Note trials that were trained whole and that no rung could stop.

        Returns:
            The first rung, if their curves and the earlier ones decide it now.
        """
        if self.spacing.is_known:
            return None
        self._ended.update({m: None for m in trial_ids if len(self._points.get(m, ())) > 1})
        if len(self._ended) < NUM_CURVES:
            return None
        curves = [self._points[name] for name in self._ended]
        found = first_rung(curves, self.spacing.grace)
        self.decide(found)
        return found

    def decide(self, found: FirstRung) -> None:
        """Take the first rung, and the points so far to the rungs that it gives."""
        self.spacing = replace(self.spacing, grace=found.rows, is_known=True)
        points, self._points = self._points, {}
        self._scores.clear()
        self._highest_rung.clear()
        for trial_id, seen in points.items():
            for rows, score in seen:
                self.add_point(trial_id, rows, score)

    def add_point(self, trial_id: str, rows: int, score: float) -> int | None:
        """Add an evaluation point; return its rung, or None if the trial reaches no new rung."""
        if not self.spacing.is_known:
            self._points.setdefault(trial_id, []).append((rows, score))
        self._rows_seen[trial_id] = max(rows, self._rows_seen.get(trial_id, 0))
        rungs = self.spacing.up_to(rows)
        before = (
            (0, 0) if trial_id in self._restarted else self._highest_rung.get(trial_id, (0, 0))
        )
        if not rungs or rungs[-1] <= before[0]:
            return None
        self._restarted.discard(trial_id)
        rung = rungs[-1]
        self._highest_rung[trial_id] = rung, rows
        self._scores.setdefault(rung, {})[trial_id] = score
        return rung

    def restart(self, trial_id: str) -> None:
        """Compare a trial that starts again at every rung that it reaches.

        Its earlier scores still count against other trials until new ones replace them.
        """
        self._restarted.add(trial_id)
        self._points.pop(trial_id, None)

    def should_continue(self, trial_id: str, rows: int, score: float) -> bool:
        """Add a point with `add_point`, and return whether the trial should continue."""
        rung = self.add_point(trial_id, rows, score)
        if rung is None:
            return True
        return score >= self._lowest_best(rung)

    def _lowest_best(self, rung: int) -> float:
        """The lowest score with which a trial goes on at a rung."""
        scores = self._scores[rung]
        best = max(1, len(scores) // self.spacing.reduction_at(rung))
        return heapq.nlargest(best, scores.values())[-1]

    def levels(self) -> dict[str, Level]:
        """How far each trial would have come by all scores so far.

        The first trials at a rung had few rivals, and many of them went on that later ones beat.
        """
        found: dict[str, Level] = {}
        for rung, scores in sorted(self._scores.items()):
            lowest = self._lowest_best(rung)
            for trial, score in scores.items():
                if trial not in found or found[trial].goes_on:
                    found[trial] = Level(rung, score, score >= lowest)
        return found

    def reports(
        self, objectives: Mapping[str, float], pruned: Collection[str]
    ) -> Iterator[RungReport]:
        """Report each rung, lowest first; `objectives` are of finished trials."""
        stops = Counter(
            self._highest_rung[trial][0] for trial in pruned if trial in self._highest_rung
        )
        for rung, scores in sorted(self._scores.items()):
            pairs = [
                (score, objectives[name])
                for name, score in scores.items()
                if name in objectives and self._could_stop(rung, name)
            ]
            correlation = _rank_correlation(pairs)
            yield RungReport(rung, len(scores), stops[rung], len(pairs), correlation)

    def _could_stop(self, rung: int, trial_id: str) -> bool:
        """Whether the rung could have stopped a trial before its end."""
        top, rows = self._highest_rung[trial_id]
        return top > rung or rows < self._rows_seen[trial_id]


def _rank_correlation(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < 3:
        return None
    try:
        at_rung, at_end = np.array(pairs).T
        return spearman(at_rung, at_end, "a rung's rank correlation")
    except NonFiniteError:  # all values of one column are equal
        return None
