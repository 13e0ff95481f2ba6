"""The order of a search's trials a second time: from scratch at each trial, in plain words."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Trial = tuple[str, int]
"""A configuration and the place of a seed among the seeds of the search."""


@dataclass
class Search:
    """A search whose sampler draws `points` in their order.

    Attributes:
        grid: The configurations of the grid.
        points: The configurations in the ranges.
        seeds: How many seeds a configuration has.
        sampled: How many configurations are sampled.
        reduction: The best 1 in `reduction` run with a further seed; None: all run with all seeds.
        budget: Trainings of sampled configurations.
        again: Trials that failed in an earlier run. They run behind all others.
    """

    grid: Sequence[str]
    points: Sequence[str]
    seeds: int
    sampled: float
    reduction: int | None
    budget: float = math.inf
    again: set[Trial] = field(default_factory=set)

    def next_trials(
        self, scores: Mapping[Trial, float | None], running: Collection[Trial]
    ) -> Collection[Trial]:
        """The trials of which one runs next, after those that have ended and those that run.

        Args:
            scores: The scores of the trials that have ended; None: it did not finish.
            running: The trials that run.
        """
        begun = {*scores, *running, *self.again}
        known = {name for name, _ in begun} - set(self.grid)
        whole = range(1 if self.reduction is not None else self.seeds)
        for due in (
            [(name, seed) for name in self.grid for seed in range(self.seeds)],
            [(name, seed) for name in sorted(known) for seed in whole],
        ):
            if missing := [trial for trial in due if trial not in begun]:
                return missing
        new = [name for name in self.points if name not in known | set(self.grid)]
        left = self.budget - sum(name in known for name, _ in begun)
        reserve = 1 + self.reserve(scores, begun, known) if known else 0.1
        if new and len(known) < self.sampled and left >= reserve:
            return [(new[0], 0)]
        waiting = {*self.again, *running} - scores.keys()
        if self.reduction is not None and left > 0:
            for seeds in range(self.seeds - 1, 0, -1):
                if further := self.further(scores, begun, waiting, seeds):
                    return further[:1]
            is_idle = {name for name, _ in waiting} <= set(self.grid)
            if new and len(known) < self.sampled and is_idle and left >= 1:
                return [(new[0], 0)]
        return waiting - {*running}

    def reserve(
        self,
        scores: Mapping[Trial, float | None],
        begun: Collection[Trial],
        known: Collection[str],
    ) -> float:
        """The further seeds that follow if one more configuration is drawn, and are paid for."""
        if self.reduction is None:
            return self.seeds - 1
        lost = {name for name, _ in scores if None in self.scores_of(name, scores)}
        counts = [len(set(known) - lost) + 1]
        for _ in range(1, self.seeds):
            counts.append(math.ceil(counts[-1] / self.reduction))
        expected = max(0, sum(counts[1:]) - sum(n in known and s > 0 for n, s in begun))
        return min(expected, self.budget / 6)

    def scores_of(self, name: str, scores: Mapping[Trial, float | None]) -> list[float | None]:
        """The scores of the seeds that have ended."""
        seeds = ((name, seed) for seed in range(self.seeds))
        return [scores[trial] for trial in seeds if trial in scores]

    def further(
        self,
        scores: Mapping[Trial, float | None],
        begun: Collection[Trial],
        waiting: Collection[Trial],
        seeds: int,
    ) -> list[Trial]:
        """The best of those with so many finished seeds that have no further one yet."""
        assert self.reduction is not None
        means = {}
        for name in {name for name, _ in scores}:
            found = [scores.get((name, s)) for s in range(seeds)]
            if None not in found:
                means[name] = statistics.fmean(score for score in found if score is not None)
        best = sorted(means, key=lambda name: (-means[name], name))
        count = len(best) / self.reduction
        rivals = [(name, seed) for name, seed in waiting if seed < seeds]
        best = best[: math.floor(count) if rivals else math.ceil(count)]
        return [(name, seeds) for name in best if (name, seeds) not in begun]
