"""Which sampled configurations go on: synchronous successive halvings, then further seeds.

The rule of a halving is that of Karnin et al., "Almost Optimal Exploration in Multi-Armed Bandits"
(2013), and Jamieson and Talwalkar, "Non-stochastic Best Arm Identification" (2016), without their
wait at the end of a stage: a configuration begins its next stage as soon as no missing result can
exclude it. All functions here are pure functions of the results so far.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tune_sentcl.errors import NonFiniteError, OutOfMemoryError

REDUCTION = 4
"""At the end of a stage of a halving, the best quarter of the configurations goes on."""

SEED_REDUCTION = 3
"""Of the configurations that train with one seed, the best third trains with the next seed."""

SHARES = tuple(1 / REDUCTION**power for power in (3, 2, 1, 0))
"""The shares of a whole training at the ends of the stages of examples."""

LEAST_STEPS = 30
"""The fewest steps of a first stage, because earlier scores predict the final score badly."""

LEAST_HALF = 32
"""The fewest configurations of each half (random, TPE); with fewer, all are drawn at random."""

Ends = Mapping[str, float | None]
"""By configuration, its score at the end of a stage; `FAILED`; or None if the score was lost."""

FAILED = -math.inf
"""The score of a configuration that failed through its hyperparameters and does not go on."""

CONFIGURATION_ERRORS = frozenset({NonFiniteError.__name__, OutOfMemoryError.__name__})
"""Errors that hyperparameters cause: full device memory, and a number that is not finite.

Any other error may be the machine's fault, so the sampler does not learn from it.
"""

_ROUNDING = 1e-9
_LEAST_FOR_COMMON = 3
"""The fewest stages with which all parts of a halving share the last stage.

The second part needs results of two stages of the first part.
"""


@dataclass(frozen=True)
class Halving:
    """A successive halving of sampled configurations, which train with the first seed.

    Its configurations are drawn in parts. Each part has stages of its own, so a part can be drawn
    when the earlier parts have ended two stages. With three stages or more, all parts share the
    last stage: the best of all parts train to the end.

    Attributes:
        shares: The shares of a whole training at the ends of stages, ascending; the last is 1.
        parts: How many configurations each part has.
        further: How many configurations beyond the best quarter run the shared stage.
    """

    shares: tuple[float, ...]
    parts: tuple[int, ...]
    further: int = 0

    @classmethod
    def of(cls, sampled: int, shares: Sequence[float] = SHARES, parts: int = 1) -> "Halving":
        """A halving of `sampled` configurations in equal parts; larger parts come first."""
        drawn = (sampled // parts + (number < sampled % parts) for number in range(parts))
        return cls(tuple(shares), tuple(drawn))

    @cached_property
    def ladders(self) -> list[list[int]]:
        """For each part, how many configurations run each of its own stages.

        Each stage has a quarter of the previous stage's configurations, rounded down, at least 1.
        """
        stages = len(self.shares)
        own = stages if stages < _LEAST_FOR_COMMON else stages - 1
        return [_ladder(size, own) for size in self.parts]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many configurations run each stage."""
        sizes = [sum(of_stage) for of_stage in zip(*self.ladders, strict=True)]
        if len(sizes) < len(self.shares):
            sizes.append(_quarter(sizes[-1]) + self.further)
        return tuple(sizes)

    @property
    def costs(self) -> list[float]:
        """For each stage, the share of a whole training that one configuration trains in it."""
        return [b - a for a, b in zip((0.0, *self.shares), self.shares, strict=False)]

    @property
    def cost(self) -> float:
        """How many whole trainings all stages take together."""
        return math.fsum(n * each for n, each in zip(self.sizes, self.costs, strict=True))

    def members(
        self, ends: Sequence[Ends], drawn: Sequence[Sequence[str]], *, complete: bool
    ) -> tuple[list[list[str]], int]:
        """The configurations that certainly run each stage.

        Args:
            ends: For each stage, how its configurations ended it. An end has no effect if its
                configuration does not belong to the stage.
            drawn: For each part that has begun, its known configurations.
            complete: Whether the last begun part gets no further configurations.

        Returns:
            For each stage their names, best first from the second stage on; and how many
            configurations will run the last stage, as far as known.
        """
        found: list[list[str]] = [[] for _ in self.ladders[0]]
        count = 0
        for part, ladder in enumerate(self.ladders):
            names = list(drawn[part]) if part < len(drawn) else []
            is_whole = part + 1 < len(drawn) or (complete and part + 1 == len(drawn))
            left = len(names) if is_whole else max(ladder[0], len(names))
            found[0] += names
            for stage, size in enumerate(ladder[1:], 1):
                names, left = certain_best(ends[stage - 1], names, left, size)
                found[stage] += names
            count += left
        if len(found) < len(self.shares):
            names, count = certain_best(ends[len(found) - 1], found[-1], count, self.sizes[-1])
            found.append(names)
        return found, count

    def going_on(self, stage: int, part: int) -> tuple[int, bool]:
        """How many go on after a stage; whether they are of one part (not of all parts)."""
        ladder = self.ladders[part]
        if stage + 1 < len(ladder):
            return ladder[stage + 1], True
        return self.sizes[stage + 1], False


def _quarter(size: int) -> int:
    return max(1, size // REDUCTION) if size else 0


def _ladder(size: int, stages: int) -> list[int]:
    sizes = [size]
    while len(sizes) < stages:
        sizes.append(_quarter(sizes[-1]))
    return sizes


@dataclass(frozen=True)
class Stages:
    """All stages of a search: its halvings, then the stages of further seeds.

    Attributes:
        halvings: The halvings, in the order in which they begin.
        seeds: The number of seeds with which the best configurations train.
        whole: How many sampled configurations train to the end without a halving.
        grid: How many configurations the grid has; all of them train with all seeds.
        keeps_all: Whether every configuration trains to the end with every seed.
    """

    halvings: tuple[Halving, ...]
    seeds: int = 1
    whole: int = 0
    grid: int = 0
    keeps_all: bool = False

    @property
    def finalists(self) -> int:
        """How many sampled configurations train to the end with the first seed."""
        return self.whole + sum(halving.sizes[-1] for halving in self.halvings)

    @cached_property
    def seed_sizes(self) -> tuple[int, ...]:
        """How many sampled configurations train with each further seed.

        Each stage has a third of the previous stage's configurations, rounded down, at least 1. A
        single configuration without a grid as rival gets no further seed, because that would not
        change the winner.
        """
        if self.keeps_all:
            return (self.finalists,) * (self.seeds - 1)
        sizes = [self.finalists]
        while len(sizes) < self.seeds and sizes[0]:
            size = max(1, sizes[-1] // SEED_REDUCTION)
            if size == 1 and not self.grid:
                break
            sizes.append(size)
        return tuple(sizes[1:])

    @property
    def cost(self) -> float:
        """How many whole trainings all stages take together, without those of the grid."""
        halvings = math.fsum(halving.cost for halving in self.halvings)
        return halvings + self.whole + sum(self.seed_sizes)

    def with_seeds(
        self,
        ends: Sequence[Ends],
        finalists: Sequence[str],
        count: int,
        rivals: Sequence[Ends],
        num_rivals: int,
    ) -> list[list[str]]:
        """The configurations that certainly train with each further seed, best first.

        The best third of finalists and rivals goes on, but at most as many sampled configurations
        as the stage has. The best sampled configuration always goes on.

        Args:
            ends: For each number of seeds, from 1, how configurations ended with these seeds.
            finalists: The sampled configurations that certainly train to the end.
            count: How many finalists there will be, as far as known.
            rivals: The same as `ends`, for configurations that train to the end with all seeds:
                the grid, and sampled configurations without training steps.
            num_rivals: How many rivals there are.
        """
        found, before = [list(finalists)], self.finalists
        for stage, size in enumerate(self.seed_sizes):
            missing = count - sum(name in ends[stage] for name in found[-1])
            certain, going_on = certain_best(ends[stage], found[-1], count, size)
            if num_rivals and not self.keeps_all:
                all_missing = missing + num_rivals - len(rivals[stage])
                places = (before + num_rivals) // SEED_REDUCTION - all_missing
                both = {**_ranked(rivals[stage]), **_ranked(ends[stage], found[-1])}
                best = {*_best(both)[: max(0, places)], *(certain[:1] if not missing else ())}
                certain = [name for name in certain if name in best]
                going_on = going_on if all_missing else len(certain)
            count, before = going_on, size
            found.append(certain)
        return found[1:]


def certain_best(
    ends: Ends, members: Sequence[str], count: int, size: int
) -> tuple[list[str], int]:
    """The members of a stage that stay among the best even if all missing members beat them.

    Ties are broken by name.

    Args:
        ends: How configurations ended the stage; configurations that are no members have no
            effect.
        members: The known members of the stage.
        count: How many members the stage will have, as far as known.
        size: How many members go on.

    Returns:
        Their names, best first; and how many members will go on, as far as known.
    """
    missing = count - sum(name in ends for name in members)
    ranked = _ranked(ends, members)
    return _best(ranked)[: max(0, size - missing)], min(size, missing + len(ranked))


def _ranked(ends: Ends, members: Sequence[str] | None = None) -> dict[str, float]:
    """The scores that have a rank, of some members or of all."""
    names = set(ends if members is None else members)
    scores = ((name, end) for name, end in ends.items() if name in names)
    return {name: end for name, end in scores if end is not None and end > FAILED}


def _best(scores: Mapping[str, float]) -> list[str]:
    """The names from the highest to the lowest score; ties are broken by name."""
    return sorted(scores, key=lambda name: (-scores[name], name))


def ranks(halvings: Sequence[Sequence[Ends]]) -> dict[str, float]:
    """The ranks of halvings' configurations by how far each got; the sampler is told these.

    A configuration ranks above another if only it ended the second stage. Otherwise the later of
    the first two stages that they ended decides, by score. A configuration that failed through its
    hyperparameters has the rank -1. A configuration without a score, such as a lost one, has no
    rank.

    Args:
        halvings: For each halving and stage, how its configurations ended it.
    """
    reached: dict[str, tuple[int, float]] = {}
    for stages in halvings:
        for stage, ends in enumerate(stages[:2]):
            for name, end in ends.items():
                if end is not None:
                    reached[name] = (stage, end)
                else:
                    reached.pop(name, None)
    failed = {name for name, (_, end) in reached.items() if end == FAILED}
    order = sorted(reached.keys() - failed, key=lambda name: (reached[name], name))
    return {**dict.fromkeys(sorted(failed), -1.0), **{n: float(i) for i, n in enumerate(order)}}


def stages_for(
    budget: float, most: float, shares: Sequence[float], stages: Stages, *, parts: int = 2
) -> Stages:
    """Add the largest halving that a budget of whole trainings pays for.

    The budget first pays for the further seeds. The remainder lets more configurations train to
    the end. The halving is drawn in one part if several parts would have fewer than `LEAST_HALF`
    configurations each.

    Args:
        budget: The number of whole trainings.
        most: How many configurations the ranges still hold.
        shares: The shares of a whole training at the ends of stages.
        stages: The stages so far; they keep their halvings.
        parts: The most parts of the halving.

    Returns:
        The extended stages; the given stages if the budget pays for no configuration.
    """

    def of(sampled: int, further: int = 0) -> Stages:
        halving = replace(Halving.of(sampled, shares, parts), further=further)
        return replace(stages, halvings=(*stages.halvings, halving))

    def pays(sampled: int, further: int = 0) -> bool:
        return of(sampled, further).cost - stages.cost <= budget + _ROUNDING

    sampled = _largest(pays, most)
    if parts > 1 and sampled < parts * LEAST_HALF:
        return stages_for(budget, most, shares, stages, parts=1)
    if not sampled:
        return stages
    further = 0
    if len(shares) >= _LEAST_FOR_COMMON:
        before, last = Halving.of(sampled, shares, parts).sizes[-2:]
        further = _largest(lambda number: pays(sampled, number), before - last)
    return of(sampled, further)


def _largest(pays: Callable[[int], bool], most: float) -> int:
    """The largest number, up to a bound, for which `pays` is true."""
    low, high = 0, 1
    while low < most and pays(high):
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return int(min(low, most))


def stages_of_samples(
    sampled: int, shares: Sequence[float], stages: Stages, *, parts: int = 2
) -> Stages:
    """Add a halving of `sampled` configurations to stages; see `stages_for`."""
    if sampled <= 0:
        return stages
    parts = parts if sampled >= parts * LEAST_HALF else 1
    return replace(stages, halvings=(*stages.halvings, Halving.of(sampled, shares, parts)))


def first_shares(steps: int, texts: int = 0, scored: int = 0) -> tuple[float, ...]:
    """The shares of the stages, from the first stage whose score is worth its cost.

    At the end of that stage, the shortest training has made `LEAST_STEPS` steps or more, and has
    trained on at least a third as many texts as its score encodes. No measured time decides, so
    all machines have the same stages.

    Args:
        steps: The steps of the shortest training.
        texts: The number of its training texts.
        scored: The number of texts that a score at the end of a stage encodes.
    """
    return tuple(
        s for s in SHARES if s == 1 or (s * steps >= LEAST_STEPS and 3 * s * texts >= scored)
    )
