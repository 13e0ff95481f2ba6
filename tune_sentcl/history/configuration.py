"""Configurations of a study or a search: hyperparameters, trials by seed, and their ranking."""

import statistics
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from tune_sentcl.config import Values, draws
from tune_sentcl.history.trial_records import LostReason, Origin, Result
from tune_sentcl.objective import mean as mean_of
from tune_sentcl.store.union import TOLERANCE

K = TypeVar("K", bound=Hashable)
RankKey = tuple[bool, bool, int, float, str]
"""The sort key of a configuration; the best configuration has the smallest key."""


@dataclass(slots=True, eq=False)
class Configuration:
    """One configuration with the results of its seeds.

    Methods take the number of an objective, in the order of `Result.values`.

    Attributes:
        name: Its id.
        origin: Whether the grid or the sampler requested it.
        values: Its hyperparameters by dotted key; ignore a seed among them.
        trials: Its trials by seed.
        results: The results of its trials, by seed; a trial without a row has no result.
        confirming: The seeds that took no part in any choice (confirmation seeds).
        code: The fingerprint of its method's plugin; empty for a built-in method, or if it was not
            read.
    """

    name: str
    origin: Origin
    values: Values
    trials: dict[int, str] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)
    confirming: set[int] = field(default_factory=set)
    code: str = ""

    @property
    def search_seeds(self) -> set[int]:
        """The seeds that took part in a choice."""
        return {*self.trials} - self.confirming

    def scores(self, number: int = 0) -> dict[int, float]:
        """By seed, the value of an objective of each trial that finished with a value."""
        values = {
            seed: result.values[number]
            for seed, result in self.results.items()
            if result.status == "finished"
        }
        return {seed: value for seed, value in values.items() if value is not None}

    def chosen_scores(self, number: int = 0) -> dict[int, float]:
        """The scores of the search seeds."""
        return {s: value for s, value in self.scores(number).items() if s not in self.confirming}

    def confirming_scores(self) -> dict[int, float]:
        """The first objective of the confirmation seeds."""
        return {seed: value for seed, value in self.scores().items() if seed in self.confirming}

    def mean(self, seeds: Iterable[int], number: int = 0) -> float | None:
        """The mean of an objective over seeds; None if a seed has no value."""
        scores, wanted = self.scores(number), list(seeds)
        if not wanted or not all(seed in scores for seed in wanted):
            return None
        return statistics.fmean(scores[seed] for seed in wanted)

    def constant_score(self, number: int = 0) -> float | None:
        """The score that holds for every seed, if scores do not depend on the seed; else None."""
        return constant_score(list(self.scores(number).values()), self.values)

    def lost(self, number: int = 0) -> Mapping[int, LostReason]:
        """Why each seed without a score was lost; empty if the score is constant."""
        if self.constant_score(number) is not None:
            return {}
        reasons = {seed: result.lost[number] for seed, result in self.results.items()}
        return {seed: reason for seed, reason in reasons.items() if reason is not None}

    def chosen_lost(self, number: int = 0) -> list[int]:
        """The search seeds that were lost."""
        return [seed for seed in self.lost(number) if seed not in self.confirming]


def ranked(configurations: Iterable[Configuration], number: int = 0) -> list[Configuration]:
    """Rank configurations by an objective over their search seeds; see `rank_keys`."""
    every = list(configurations)
    keys = order_keys(every, number)
    return sorted(every, key=lambda configuration: keys[configuration.name])


def order_keys(configurations: Iterable[Configuration], number: int = 0) -> dict[str, RankKey]:
    """The `rank_keys` of configurations by name."""
    by_name = {each.name: each for each in configurations}
    scores = {name: list(c.chosen_scores(number).values()) for name, c in by_name.items()}
    lost = {name: len(c.chosen_lost(number)) for name, c in by_name.items()}
    constant = {name for name, c in by_name.items() if c.constant_score(number) is not None}
    return rank_keys(scores, lost, constant)


def constant_score(values: Sequence[float], knobs: Values) -> float | None:
    """The score of a configuration whose score does not depend on the seed; else None.

    The score does not depend on the seed if the configuration takes no training step and all its
    scores are equal. That score then holds for lost seeds, too.

    Args:
        values: The scores of its seeds, times 100.
        knobs: Its dotted values.
    """
    if not values or draws(knobs) or max(values) - min(values) > TOLERANCE:
        return None
    return mean_of(values)


def rank_keys(
    scores: Mapping[K, Sequence[float]],
    lost: Mapping[K, int] = MappingProxyType({}),
    constant: Container[K] = (),
) -> dict[K, RankKey]:
    """The sort keys of configurations; the smallest is the best.

    Configurations without lost seeds come first, then those with lost seeds (their other seeds may
    be the lucky ones), then those without a score. In each group, configurations with the most
    seeds come first, because the best of many means over few seeds is mostly luck. Then the
    highest mean comes first, then the name. A seed that never ran is not lost.

    Args:
        scores: By configuration, the scores of its search seeds.
        lost: By configuration, how many seeds were lost (`History.lost_reason`).
        constant: The configurations with a `constant_score`, which holds for every seed.
    """
    most = max(map(len, scores.values()), default=0)
    keys: dict[K, RankKey] = {}
    for key, values in scores.items():
        mean, is_constant = mean_of(values), key in constant
        missed = not is_constant and lost.get(key, 0) > 0
        seeds = 0 if mean is None else most if is_constant else len(values)
        keys[key] = (mean is None, missed, -seeds, -(mean or 0.0), str(key))
    return keys
