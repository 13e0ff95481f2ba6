"""One configuration of a study or a search: its knobs, and its trials by seed."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tune_sentcl.config import Values
from tune_sentcl.history.ranking import constant_score, rank_keys
from tune_sentcl.history.trial_records import LostReason, Origin, Result


@dataclass(slots=True)
class Configuration:
    """One configuration with the results of its seeds.

    Methods take the number of an objective, in the order of `Result.values`.

    Attributes:
        name: Its id.
        origin: Whether the grid or the sampler requested it.
        values: Its knobs by dotted key; a seed among them says nothing.
        trials: Its trials by seed.
        results: How they ended, by seed; a trial without a row has none.
        fresh: The seeds that took no part in any choice.
    """

    name: str
    origin: Origin
    values: Values
    trials: dict[int, str] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)

    def scores(self, number: int = 0) -> dict[int, float]:
        """An objective of each seed that has finished with it."""
        values = {
            seed: result.values[number]
            for seed, result in self.results.items()
            if result.status == "finished"
        }
        return {seed: value for seed, value in values.items() if value is not None}

    def chosen_scores(self, number: int = 0) -> dict[int, float]:
        """The scores of the seeds that took part in the choice."""
        return {s: value for s, value in self.scores(number).items() if s not in self.fresh}

    def fresh_scores(self) -> dict[int, float]:
        """The first objective of the fresh seeds."""
        return {seed: value for seed, value in self.scores().items() if seed in self.fresh}

    def mean(self, seeds: Iterable[int], number: int = 0) -> float | None:
        """The mean of an objective over seeds; None if one of them lacks it."""
        scores, wanted = self.scores(number), list(seeds)
        if not wanted or not all(seed in scores for seed in wanted):
            return None
        return statistics.fmean(scores[seed] for seed in wanted)

    def constant_score(self, number: int = 0) -> float | None:
        """The score of every seed, if it does not depend on the seed; else None."""
        return constant_score(list(self.scores(number).values()), self.values)

    def lost(self, number: int = 0) -> Mapping[int, LostReason]:
        """Why each seed without a score was lost; empty if the score is constant."""
        if self.constant_score(number) is not None:
            return {}
        reasons = {seed: result.lost[number] for seed, result in self.results.items()}
        return {seed: reason for seed, reason in reasons.items() if reason is not None}

    def chosen_lost(self, number: int = 0) -> list[int]:
        """The lost seeds that would have taken part in the choice."""
        return [seed for seed in self.lost(number) if seed not in self.fresh]


def ranked(found: Iterable[Configuration], number: int = 0) -> list[Configuration]:
    """Rank configurations (`rank_keys`) by an objective of the seeds that may choose."""
    there = list(found)
    scores = {one.name: list(one.chosen_scores(number).values()) for one in there}
    lost = {one.name: len(one.chosen_lost(number)) for one in there}
    constant = {one.name for one in there if one.constant_score(number) is not None}
    keys = rank_keys(scores, lost, constant)
    return sorted(there, key=lambda one: keys[one.name])
