"""The seeds of a study that may support a claim, and the comparisons that they allow."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import ALPHA, Comparison, Family
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.statistics import mean, smallest_shown
from tune_sentcl.store.manifest import Confirmation, SeedPlan
from tune_sentcl.store.union import TOLERANCE

Source = Literal["fresh", "planned"]
"""Seeds that no choice saw; seeds that were planned before the first score."""

MOST_SEEDS = 100
"""The largest number of fresh seeds to propose."""
_LARGEST_EFFECT = 2.0  # sds of a seed: a greater difference that was seen is partly luck

_NEXT_LEVEL = 0.2
"""The level of a confirmation, in levels of the one before.

The levels of all confirmations add up to 1.25 times alpha, which is 5 %. By Bonferroni's
inequality, no rule by which somebody asks for another one can make false claims more frequent,
because each confirmation has seeds of its own.
"""


@dataclass(frozen=True)
class Evidence:
    """A study's planned seeds and fresh seeds.

    Attributes:
        configurations: The configurations.
        alpha: The probability of a false claim among all comparisons of the planned seeds, and
            among those of the first confirmation.
        smallest: A difference of at most this many points counts as none.
    """

    configurations: Configurations
    alpha: float = ALPHA
    smallest: float = TOLERANCE

    def compare(
        self, a: Configuration, b: Configuration, *, named: bool = False
    ) -> Comparison | str:
        """Compare two configurations, or say why nothing can be claimed of them.

        Args:
            a: The configuration that is claimed to score higher.
            b: The one that it is compared with.
            named: Whether both were named, maybe after their scores had been seen. Such a pair is
                one of all pairs, even if it contains the baseline.

        Returns:
            The first comparison that decides, else the last one.
        """
        plan, source, names = self._plan, self.source(a, b), {a.name, b.name}
        plain = self.configurations.baselines()
        looks = [
            (look, look.configurations[0], self.alpha * _NEXT_LEVEL**number)
            for number, look in enumerate(plan.confirmations)
            if names <= {*look.configurations}
        ]
        if source == "planned":
            if plan.configurations is None:
                is_halved = "the search gave all seeds only to the best configurations"
                return is_halved if plan.seeds else "no common plan of seeds is recorded"
            control = plain[0].name if len(plain) == 1 else ""
            looks = [(Confirmation(plan.seeds, self._planned(plan)), control, self.alpha)]
        elif source is None:
            looks = [(Confirmation((), (a.name, b.name)), "", self.alpha)]
        last: Comparison | str = ""
        for look, control, alpha in looks:
            last = self._at(look, (a, b), "" if named else control, alpha)
            if not isinstance(last, str) and last.verdict != "UNDECIDED":
                break
        return last

    def source(self, a: Configuration, b: Configuration) -> Source | None:
        """The seeds that count: fresh ones if a confirmation compares both; None for constants."""
        if len(_constants((a, b))) == 2:
            return None
        names = {a.name, b.name}
        is_fresh = any(names <= {*look.configurations} for look in self._plan.confirmations)
        return "fresh" if is_fresh else "planned"

    @cached_property
    def confirmed(self) -> dict[str, Configuration]:
        """The configurations that the next confirmation would compare."""
        return self.configurations.contenders()

    def effect(self, pair: Sequence[Configuration], comparison: Comparison | None) -> float:
        """The difference that fresh seeds shall show, in sds of a seed."""
        a, b = (mean(list(candidate.chosen_scores().values())) for candidate in pair)
        difference, noise = a - b, self.configurations.seed_blocks.sd
        if comparison is not None:
            difference = comparison.difference
            noise = comparison.error * math.sqrt(comparison.n / 2)
        is_known = noise > 0 and math.isfinite(difference)
        return min(abs(difference) / noise, _LARGEST_EFFECT) if is_known else _LARGEST_EFFECT

    def seeds_needed(self, effect: float) -> int | None:
        """The smallest number of fresh seeds that shows an effect; None if it is too large."""
        drawn = [
            candidate
            for candidate in self.confirmed.values()
            if candidate.constant_score() is None
        ]
        alpha = self.alpha * _NEXT_LEVEL ** len(self._plan.confirmations)

        def shows(seeds: int) -> bool:
            return smallest_shown(seeds, len(self.confirmed), alpha, len(drawn)) <= effect

        numbers = range(2, MOST_SEEDS + 1)
        place = bisect_left(numbers, True, key=shows)  # more seeds show smaller differences
        return numbers[place] if place < len(numbers) else None

    @property
    def _plan(self) -> SeedPlan:
        return self.configurations.plan or SeedPlan((), None)

    def _at(
        self, look: Confirmation, pair: Sequence[Configuration], control: str, alpha: float
    ) -> Comparison | str:
        """Compare two of some configurations by some seeds, or say why these support no claim.

        A configuration that lost a seed is left out, and still counts as one that was compared.
        """
        a, b = pair
        kind, seeds = self.source(a, b), {*look.seeds}
        for candidate in pair:
            title = self.configurations.title(candidate)
            if lost := candidate.lost().keys() & seeds:
                what = "fresh seed" if kind == "fresh" else "seed"
                return f"{title} lost {len(lost)} {what}{'s'[: len(lost) - 1]}"
        tried = [self.configurations.tried.get(name) for name in look.configurations]
        members = [candidate for candidate in tried if candidate and candidate.results]
        whole = [candidate for candidate in members if candidate.lost().keys().isdisjoint(seeds)]
        drawn = {
            candidate.name: candidate.scores()
            for candidate in whole
            if candidate.constant_score() is None
        }
        if len(members) < len(tried) or any(not own.keys() >= seeds for own in drawn.values()):
            return f"not all {kind} trials have finished"
        for candidate in pair:
            if candidate not in members:
                return f"{self.configurations.title(candidate)} was added after the {kind} seeds"
        family = Family(
            {name: {seed: own[seed] for seed in look.seeds} for name, own in drawn.items()},
            _constants(members),
            len(members),
            alpha,
            control,
            self.configurations.collapsed,
        )
        comparison = family.compare(a.name, b.name, self.smallest)
        return comparison or "one seed does not show the noise"

    def _planned(self, plan: SeedPlan) -> tuple[str, ...]:
        """The grid and the first sampled configurations; a missing one has an empty name."""
        tried = self.configurations.tried.values()
        sampled = [
            candidate.name
            for candidate in tried
            if candidate.origin == "sampler" and candidate.results
        ]
        names = [*plan.grid, *(name for name in sampled if name not in plan.grid)]
        count = plan.configurations or 0
        return tuple([*names, *[""] * count][:count])


def _constants(configurations: Iterable[Configuration]) -> dict[str, float]:
    scores = {candidate.name: candidate.constant_score() for candidate in configurations}
    return {name: score for name, score in scores.items() if score is not None}
