"""Which sampled configurations go on: synchronous successive halving, sized by its budget.

The rule is that of Karnin et al., "Almost Optimal Exploration in Multi-Armed Bandits" (2013), and
Jamieson and Talwalkar, "Non-stochastic Best Arm Identification" (2016), without its wait at the
end of a stage: a configuration begins its next stage as soon as no missing result can keep it out.
Everything here is a pure function of the results so far.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tune_sentcl.errors import ConfigError, Fault

REDUCTION = 4
"""Of the configurations that end a stage of rows, the best 1 in so many go on."""

SEED_REDUCTION = 3
"""Of the configurations that end a stage of seeds, the best 1 in so many go on."""

SHARES = tuple(1 / REDUCTION**power for power in (3, 2, 1, 0))
"""The shares of a whole training at the ends of the stages of rows."""

LEAST_STEPS = 30
"""The fewest steps of a first stage: scores after fewer say little of the end."""

Ends = Mapping[str, float | None]
"""How configurations ended a stage: the score, `FAILED`, or None for an end without a rank."""

FAILED = -math.inf
"""The score of a configuration that failed through its own settings; it goes no further."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Stages:
    """The stages of a search and how many sampled configurations run each.

    The first stages are shares of a whole training with the first seed, the last of them 1. Each
    further one is a whole training with one seed more.

    Attributes:
        shares: The shares, ascending.
        sizes: The configurations of each stage, those of shares first.
        grid: The configurations of the grid, which have all seeds.
        keeps_all: Whether every configuration runs every stage.
    """

    shares: tuple[float, ...]
    sizes: tuple[int, ...]
    grid: int = 0
    keeps_all: bool = False

    @classmethod
    def of(
        cls,
        sampled: int,
        shares: Sequence[float] = SHARES,
        *,
        seeds: int = 1,
        grid: int = 0,
        keeps_all: bool = False,
    ) -> "Stages":
        """The stages of so many sampled configurations.

        Each stage has the best quarter of the one before, at a further seed the best third,
        rounded down and at least 1. A single configuration gets no further seed unless a grid
        competes with it, because that seed would not change the winner.
        """
        if keeps_all:
            return cls((1.0,), (sampled,) * seeds, grid, keeps_all=True)
        sizes = [max(1, sampled // REDUCTION**stage) for stage in range(len(shares))]
        for _ in range(seeds - 1):
            size = max(1, sizes[-1] // SEED_REDUCTION)
            if size == 1 and not grid:
                break
            sizes.append(size)
        return cls(tuple(shares), tuple(sizes), grid)

    @property
    def costs(self) -> list[float]:
        """The share of a whole training that one configuration trains in each stage."""
        rows = [b - a for a, b in zip((0.0, *self.shares), self.shares, strict=False)]
        return rows + [1.0] * (len(self.sizes) - len(rows))

    @property
    def cost(self) -> float:
        """The whole trainings that all stages take together."""
        return math.fsum(n * each for n, each in zip(self.sizes, self.costs, strict=True))

    def seeds(self, stage: int) -> int:
        """The seeds with which a configuration has been trained at the end of a stage."""
        return max(1, stage - len(self.shares) + 2)

    def share(self, stage: int) -> float:
        """The share of a whole training to which a stage trains a seed."""
        return self.shares[stage] if stage < len(self.shares) else 1.0

    def going_on(
        self, ends: Sequence[Ends], grid: Sequence[Ends], *, proposed: int | None = None
    ) -> list[list[str]]:
        """The configurations that certainly run each stage behind the first, the best first.

        A configuration is certain to go on if it stays among the best even when all configurations
        without an end at its stage beat it. Ties go by name. After a whole training the grid
        competes too: the best third of both goes on, but at most the stage's size of sampled
        configurations. The best sampled configuration always goes on.

        Args:
            ends: For each stage, how its configurations ended it. Ends at later stages of
                configurations that do not belong there have no effect.
            grid: For each number of seeds, from 1, how the grid's configurations ended with it.
            proposed: The configurations of the first stage if there will be no more; None: as
                many as its size.

        Returns:
            For the second and each later stage, the names.
        """
        members, later = set(ends[0]), []
        # `count` is how many configurations the stage will have, as far as that is known.
        count = max(self.sizes[0] if proposed is None else proposed, len(members))
        for stage, size in enumerate(self.sizes[1:]):
            ended = {name: end for name, end in ends[stage].items() if name in members}
            ranked = {n: end for n, end in ended.items() if end is not None and end > FAILED}
            missing = count - len(ended)
            certain = _best(ranked)[: max(0, size - missing)]
            count = min(size, count - len(ended) + len(ranked))
            if stage + 1 >= len(self.shares) and self.grid and not self.keeps_all:
                rivals = grid[self.seeds(stage) - 1]
                certain, is_known = self._beside_grid(stage, certain, ranked, rivals, missing)
                count = len(certain) if is_known else count
            members = set(certain)
            later.append(certain)
        return later

    def _beside_grid(
        self, stage: int, certain: list[str], ranked: Ends, rivals: Ends, missing: int
    ) -> tuple[list[str], bool]:
        """Those of `certain` that the grid cannot keep out, and whether they are all."""
        all_missing = missing + self.grid - len(rivals)
        places = (self.sizes[stage] + self.grid) // SEED_REDUCTION - all_missing
        both = {**{n: end for n, end in rivals.items() if end is not None}, **ranked}
        best = set(_best(both)[: max(0, places)])
        leader = certain[:1] if not missing else []
        return [name for name in certain if name in best or name in leader], not all_missing


def _best(ends: Ends) -> list[str]:
    """The names from the highest to the lowest score; ties by name."""
    return sorted(ends, key=lambda name: (-(ends[name] or 0.0), name))


def stages_for(budget: float, most: float, of: Callable[[int], Stages]) -> Stages:
    """The stages with the most configurations that a budget of whole trainings pays for.

    Args:
        budget: Whole trainings.
        most: The configurations that the ranges hold.
        of: Makes the stages of so many configurations.

    Raises:
        ConfigError: The budget pays for no configuration.
    """

    def pays(sampled: int) -> bool:
        return of(sampled).cost <= budget + _ROUNDING

    if not pays(1):
        rule = f"must be at least {of(1).cost:g}: one configuration with its seeds takes so much"
        raise ConfigError(Fault("--budget", "", f"{budget:g}", rule, "Give more, or fewer seeds."))
    low, high = 1, 2
    while low < most and pays(high):
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return of(int(min(low, max(1, most))))


def first_shares(fewest_steps: int) -> tuple[float, ...]:
    """The shares from the first on at which every training has made `LEAST_STEPS` steps.

    Args:
        fewest_steps: The steps of the whole training that makes the fewest.
    """
    return tuple(s for s in SHARES if s * fewest_steps >= LEAST_STEPS or s == 1)
