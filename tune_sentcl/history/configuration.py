"""One configuration of a study or a search: its knobs, and its trials by seed."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from tune_sentcl.config import Values
from tune_sentcl.history.trial_records import Origin, Result


@dataclass(slots=True)
class Configuration:
    """One configuration with the results of its seeds.

    Attributes:
        name: Its id.
        origin: Whether the grid or the sampler requested it.
        values: Its knobs by dotted key; a seed among them says nothing.
        trials: Its trials by seed.
        results: How they ended, by seed; a trial without a row has none.
    """

    name: str
    origin: Origin
    values: Values
    trials: dict[int, str] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)

    def scores(self, number: int = 0) -> dict[int, float]:
        """An objective, by its number, of each seed that has finished with it."""
        values = {
            seed: result.values[number]
            for seed, result in self.results.items()
            if result.status == "finished"
        }
        return {seed: value for seed, value in values.items() if value is not None}

    def mean(self, seeds: Iterable[int], number: int = 0) -> float | None:
        """The mean of an objective over seeds; None if one of them lacks it."""
        scores, wanted = self.scores(number), list(seeds)
        if not wanted or not all(seed in scores for seed in wanted):
            return None
        return statistics.fmean(scores[seed] for seed in wanted)
