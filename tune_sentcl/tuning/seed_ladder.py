"""Which sampled configurations run with a further seed, and what a search has spent on them.

The seeds of a configuration are the upper rungs of successive halving: it runs with its first
seed, and with one seed more each time that it is among the best of those with equally many
finished seeds. Seeds vary the score of a fine-tuned encoder as much as most knobs do (Dodge et
al., "Fine-Tuning Pretrained Language Models", 2020), so a choice by one seed is often wrong, and
all seeds for all configurations cost as much as several times the configurations.
"""

import math
from collections.abc import Mapping

from tune_sentcl.tuning.configuration_groups import Group

SEED_REDUCTION = 3
"""Of the configurations with equally many finished seeds, the best 1 in so many go on."""


def further_seeds(groups: Mapping[str, Group], reduction: int) -> list[str]:
    """The configurations that may run with their next seed now, the best first.

    Of n configurations whose first k seeds have finished, the best n / reduction, rounded up, run
    with a further seed. They are compared by the mean of the first objective over these k seeds,
    which all of them have. Configurations of the grid count as rivals.

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
        best = reached[: math.ceil(len(reached) / reduction)]
        found += [name for _, name in best if _waits(groups[name], seeds)]
    return found


def _waits(group: Group, seeds: int) -> bool:
    return group.released == seeds < len(group.trial_ids) and group.ended


def expected_seeds(configurations: int, seeds: int, reduction: int) -> int:
    """How many trials with a further seed follow the first seeds of so many configurations."""
    total, left = 0, configurations
    for _ in range(seeds - 1):
        left = math.ceil(left / reduction)
        total += left
    return total


class Spending:
    """What the sampled configurations of a search cost, in whole trainings of one seed.

    A trial that was stopped or that failed costs the share of its steps that it has made. A
    running trial is taken to cost as much as the mean first seed so far, if it is a first seed
    (1 before the first end); further seeds cost 1.
    """

    def __init__(self, budget: float) -> None:
        """Begin with nothing spent; `budget` is in whole trainings."""
        self.budget = budget
        self._running: dict[str, bool] = {}
        self._costs: dict[str, float] = {}
        self._spent = self._spent_on_first = 0.0
        self._num_first = 0

    def begin(self, trial_id: str, *, first_seed: bool) -> None:
        """Note that a trial runs."""
        self._running[trial_id] = first_seed

    def requeue(self, trial_id: str) -> None:
        """Note that a trial has lost its worker and will run again."""
        self._running.pop(trial_id, None)

    def end(self, trial_id: str, cost: float, *, first_seed: bool) -> None:
        """Note the cost of a trial that has ended; its last end counts."""
        self.requeue(trial_id)
        more = cost - self._costs.get(trial_id, 0.0)
        self._spent += more
        if first_seed:
            self._spent_on_first += more
            self._num_first += trial_id not in self._costs
        self._costs[trial_id] = cost

    @property
    def mean_cost(self) -> float:
        """The mean cost of the first seeds that have ended; 1 before the first end."""
        return self._spent_on_first / self._num_first if self._num_first else 1.0

    @property
    def left(self) -> float:
        """What remains of the budget when all running trials have ended."""
        first = sum(self._running.values())
        running = first * self.mean_cost + len(self._running) - first
        return self.budget - self._spent - running
