"""Which sampled configurations run with a further seed, and what they have cost.

The seeds of a configuration are the upper rungs of successive halving: it runs with its first
seed, and with one seed more each time that it is among the best of those with equally many
finished seeds. Seeds vary the score of a fine-tuned encoder as much as most knobs do (Dodge et
al., "Fine-Tuning Pretrained Language Models", 2020), so a choice by one seed is often wrong, and
all seeds for all configurations cost as much as several times the configurations.
"""

import math
from collections import deque
from collections.abc import Mapping

from tune_sentcl.history import Status
from tune_sentcl.tuning.configuration_groups import Group, Groups, Sampling

SEED_REDUCTION = 3
"""Of the configurations with equally many finished seeds, the best 1 in so many go on."""

_MOST_FOR_SEEDS = 1 / 6
"""The largest share of a budget that is kept for further seeds. Of small budgets they would take
a third, and few configurations would remain to choose from."""


_LEAST_COST = 0.02
"""Of an ended trial, in whole trainings. Else a budget would never end where all sampled
configurations fail before their first step."""


def further_seeds(groups: Mapping[str, Group], reduction: int) -> list[str]:
    """The configurations that may run with their next seed now, the best first.

    Of n configurations whose first k seeds have finished, the best n / reduction run with a
    further seed. The number is rounded down while one of the first k seeds of any configuration
    waits or runs, so that the first ones to end do not go on for that reason. Then it is rounded
    up. The configurations are compared by the mean of the first objective over the k seeds.
    Configurations of the grid count as rivals.

    Args:
        groups: The configurations by name.
        reduction: The best 1 in `reduction` go on.
    """
    finished = {name: group.num_finished_first() for name, group in groups.items()}
    found: list[str] = []
    for seeds in range(max(finished.values(), default=0), 0, -1):
        reached = sorted(
            (-means[0], name)
            for name, count in finished.items()
            if count >= seeds and (means := groups[name].means(seeds)) is not None
        )
        have_all_ended = all(group.has_ended(seeds) for group in groups.values())
        rounded = math.ceil if have_all_ended else math.floor
        best = reached[: rounded(len(reached) / reduction)]
        waiting = (name for _, name in best if groups[name].released == seeds)
        found += (name for name in waiting if seeds < len(groups[name].trial_ids))
    return found


def expected_seeds(configurations: int, seeds: int, reduction: int) -> int:
    """How many trials with a further seed follow the first seeds of so many configurations."""
    total, left = 0, configurations
    for _ in range(seeds - 1):
        left = math.ceil(left / reduction)
        total += left
    return total


class SeedLadder:
    """Counts the trials of sampled configurations, and hands out their further seeds."""

    def __init__(self, groups: Groups, sampling: Sampling) -> None:
        """Begin without trials; the groups may grow."""
        self._groups, self._sampling = groups, sampling
        self._spending = Spending(sampling.budget)
        self._stopped: set[str] = set()  # configurations of which a trial did not finish
        self._waiting: deque[str] = deque()  # configurations that may run with their next seed
        self._has_changed = True  # since `_waiting` was computed

    def begin(self, trial_id: str, *, is_trained: bool, earlier: float | None) -> None:
        """Note that a trial waits; if it has been trained, it costs nothing more.

        Args:
            trial_id: The trial.
            is_trained: Whether it is only measured.
            earlier: The cost of its failed attempt; None without one.
        """
        first = self._groups.is_first_seed(trial_id)
        if self._groups.of_trial(trial_id).origin != "sampler":
            return
        cost = 1.0 if is_trained else earlier
        if cost is not None:
            self._spending.end(trial_id, cost, first_seed=first)
        if not is_trained:
            self._spending.begin(trial_id, first_seed=first)

    def end(self, trial_id: str, status: Status, cost: float) -> None:
        """Note the end of a trial; `cost` is its share of a whole training."""
        self._has_changed = True
        name = self._groups.configuration_of(trial_id)
        if self._groups[name].origin != "sampler":
            return
        if status != "finished":
            self._stopped.add(name)
        first = self._groups.is_first_seed(trial_id)
        self._spending.end(trial_id, cost, first_seed=first)

    @property
    def can_sample(self) -> bool:
        """Whether the budget pays for a further configuration.

        Enough must be left for one more, and for the further seeds of all, or for those that a
        sixth of the budget pays for. Where no configuration may run with a further seed, because
        those of the grid are better, one more is enough.
        """
        left = self._spending.left
        if math.isinf(left) or not self._groups.sampled:
            return left > 0
        left -= self._spending.mean_cost
        if left >= self._reserved(1):
            return True
        is_over = self._sampling.reduction is not None and self._spending.is_idle
        return left >= 0 and is_over and not self.has_waiting()

    @property
    def num_affordable(self) -> float:
        """About how many further configurations the budget pays for, with their seeds."""
        reduction, seeds = self._sampling.reduction or 1, len(self._sampling.seeds)
        each = self._spending.mean_cost + math.fsum(1 / reduction**n for n in range(1, seeds))
        return (self._spending.left - self._reserved()) / max(each, 1e-6)

    def _reserved(self, more: int = 0) -> float:
        """The trainings kept for further seeds of all configurations and of `more` new ones."""
        expected = self.num_expected(more)
        if self._sampling.reduction is None:
            return expected
        return min(expected, self._spending.budget * _MOST_FOR_SEEDS)

    def has_waiting(self) -> bool:
        """Whether a configuration may run with its next seed, within the budget."""
        if self._sampling.reduction is None or self._spending.left <= 0:
            return False
        if self._has_changed:
            found = further_seeds(dict(self._groups.items()), self._sampling.reduction)
            self._waiting, self._has_changed = deque(found), False
        return bool(self._waiting)

    def release(self) -> str:
        """Let the best waiting configuration run with its next seed; return its name."""
        name = self._waiting.popleft()
        self._groups.release(name, self._groups[name].released + 1)
        return name

    def num_expected(self, more: int = 0) -> int:
        """How many further seeds will follow the configurations so far and so many more."""
        if self._sampling.reduction is None:
            return more * (len(self._sampling.seeds) - 1)
        going_on = self._groups.sampled - len(self._stopped) + more
        seeds, reduction = len(self._sampling.seeds), self._sampling.reduction
        expected = expected_seeds(going_on, seeds, reduction)
        return max(0, expected - self._groups.further_seeds)


class Spending:
    """The cost of the sampled configurations of a search, in whole trainings of one seed.

    A trial that was stopped or that failed costs the share of its steps that it has made, also
    while it waits to run again. Another trial that waits or runs is taken to cost as much as the
    mean first seed so far, if it is a first seed (1 before the first end); further seeds cost 1.
    """

    def __init__(self, budget: float) -> None:
        """Begin with nothing spent; `budget` is in whole trainings."""
        self.budget = budget
        self._waiting: dict[str, bool] = {}  # whether it is a first seed
        self._costs: dict[str, float] = {}
        self._spent = self._spent_on_first = 0.0
        self._num_first = 0

    def begin(self, trial_id: str, *, first_seed: bool) -> None:
        """Note that a trial waits or runs."""
        self._waiting[trial_id] = first_seed

    def end(self, trial_id: str, cost: float, *, first_seed: bool) -> None:
        """Note the cost of a trial that has ended; its last end counts."""
        self._waiting.pop(trial_id, None)
        cost = max(cost, _LEAST_COST)
        more = cost - self._costs.get(trial_id, 0.0)
        self._spent += more
        if first_seed:
            self._spent_on_first += more
            self._num_first += trial_id not in self._costs
        self._costs[trial_id] = cost

    @property
    def is_idle(self) -> bool:
        """Whether no trial waits or runs."""
        return not self._waiting

    @property
    def mean_cost(self) -> float:
        """The mean cost of the first seeds that have ended; 1 before the first end."""
        return self._spent_on_first / self._num_first if self._num_first else 1.0

    @property
    def left(self) -> float:
        """The rest of the budget when all trials so far have ended."""
        new = [is_first for trial, is_first in self._waiting.items() if trial not in self._costs]
        first = sum(new)
        return self.budget - self._spent - first * self.mean_cost - (len(new) - first)
