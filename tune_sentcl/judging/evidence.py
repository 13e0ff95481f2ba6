"""Comparisons that a study's seeds support, and the number of fresh seeds that decide."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tune_sentcl.errors import TuneSentclError
from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import ALPHA, Comparison, Family
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.statistics import mean, smallest_shown
from tune_sentcl.objective import Objective
from tune_sentcl.store.manifest import Confirmation, SeedPlan
from tune_sentcl.store.study import Study
from tune_sentcl.store.union import TOLERANCE

Source = Literal["fresh", "planned"]
"""Seeds that no choice saw; seeds that were planned before the first score."""

UNFINISHED = "not all fresh trials have finished"
"""Why a confirmation that has not ended supports no claim."""

FRESH_SEEDS = 8
"""The fresh seeds that are proposed before any score is known.

The smallest number with which Dunnett's test at level `ALPHA` establishes, with probability
`POWER`, that the winner is two standard deviations of a seed better than the runner-up. It is
`seeds_needed(2.0)` for these two and an untrained baseline, which has no noise and adds no degree
of freedom: 8 seeds show 1.93 sds, 7 seeds 2.15, and 3 seeds 6.4.
"""
MOST_SEEDS = 100
"""The largest number of fresh seeds to propose."""
_LARGEST_EFFECT = 2.0  # sds of a seed: a greater difference that was seen is partly luck
_CONFIRMED = 3  # winner, baseline and runner-up

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
            Of fresh seeds the first comparison that decides, else the last one.
        """
        plan, source = self._plan, self.source(a, b)
        if source is None:
            return self._at(Confirmation((), (a.name, b.name)), (a, b), "", self.alpha)
        if source == "planned":
            if plan.configurations is None:
                is_halved = "the search gave all seeds only to the best configurations"
                return is_halved if plan.seeds else "no seeds were planned in advance"
            plain = [each.name for each in self.configurations.baselines()]
            control = plain[0] if len(plain) == 1 and not named else ""
            look = Confirmation(plan.seeds, self._planned(plan))
            return self._at(look, (a, b), control, self.alpha)
        last: Comparison | str = ""
        for number, look in enumerate(plan.confirmations):
            if {a.name, b.name} <= {*look.configurations}:
                control = "" if named else look.configurations[0]
                last = self._at(look, (a, b), control, self.alpha * _NEXT_LEVEL**number)
                if not isinstance(last, str) and last.verdict != "UNDECIDED":
                    break
        return last

    def source(self, a: Configuration, b: Configuration) -> Source | None:
        """The seeds that count: fresh ones if a confirmation compares both; None for constants."""
        if len(_constants((a, b))) == 2:
            return None
        looks = (look.configurations for look in self._plan.confirmations)
        return "fresh" if any({a.name, b.name} <= {*names} for names in looks) else "planned"

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
        count = len(self.confirmed)
        drawn = count - len(_constants(self.confirmed.values()))
        alpha = self.alpha * _NEXT_LEVEL ** len(self._plan.confirmations)
        numbers = range(2, MOST_SEEDS + 1)
        place = bisect_left(  # more seeds show smaller differences
            numbers, True, key=lambda n: smallest_shown(n, count, alpha, drawn) <= effect
        )
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
        kind, seeds = self.source(*pair), {*look.seeds}
        for candidate in pair:
            if lost := candidate.lost().keys() & seeds:
                what = "fresh seed" if kind == "fresh" else "seed"
                title = self.configurations.title(candidate)
                return f"{title} lost {len(lost)} {what}{'s'[: len(lost) - 1]}"
        tried = [self.configurations.tried.get(name) for name in look.configurations]
        members = [candidate for candidate in tried if candidate and candidate.results]
        constants = _constants(members)
        drawn = {
            candidate.name: candidate.scores()
            for candidate in members
            if candidate.name not in constants and candidate.lost().keys().isdisjoint(seeds)
        }
        if len(members) < len(tried) or any(not own.keys() >= seeds for own in drawn.values()):
            return UNFINISHED if kind == "fresh" else "not all planned trials have finished"
        for candidate in pair:
            if candidate not in members:
                title = self.configurations.title(candidate)
                return f"{title} was not among those of the {kind} seeds"
        scores = {name: {seed: own[seed] for seed in look.seeds} for name, own in drawn.items()}
        collapsed = self.configurations.collapsed
        family = Family(scores, constants, len(members), alpha, control, collapsed)
        comparison = family.compare(pair[0].name, pair[1].name, self.smallest)
        return comparison or "one seed shows no noise"

    def _planned(self, plan: SeedPlan) -> tuple[str, ...]:
        """The grid and the first sampled configurations; a missing one has an empty name."""
        tried = self.configurations.tried.values()
        sampled = [each.name for each in tried if each.origin == "sampler" and each.results]
        count = plan.configurations or 0
        names = [*dict.fromkeys((*plan.grid, *sampled)), *[""] * count]
        return tuple(names[:count])


def _constants(configurations: Iterable[Configuration]) -> dict[str, float]:
    scores = {candidate.name: candidate.constant_score() for candidate in configurations}
    return {name: score for name, score in scores.items() if score is not None}


def shown(plan: SeedPlan, confirm: int, noise: tuple[float, int]) -> str:
    """Say which differences the seeds of a search can show, before they are paid for.

    Empty for a single configuration, and if older configurations scored alike with every seed.

    Args:
        plan: The seeds that it is asked for.
        confirm: The number of fresh seeds that follow.
        noise: Of `older_noise`.
    """
    if plan.configurations == 1:
        return ""
    seeds, kind, count = len(plan.seeds), "seeds", plan.configurations or _CONFIRMED
    if confirm:
        seeds, kind, count = confirm, "fresh seeds", _CONFIRMED
    elif plan.configurations is None and seeds > 1:
        seeds, kind = FRESH_SEEDS, f"fresh seeds (--confirm {FRESH_SEEDS})"
    least = smallest_shown(seeds, count, ALPHA)
    if math.isinf(least):
        seed = f"1 {kind.removesuffix('s')}"
        more = f"give --seeds 0,1,2 or --confirm {FRESH_SEEDS}"
        return f"{seed} cannot show whether a difference is luck: {more}"
    sd, older = noise
    if math.isnan(sd) or sd <= TOLERANCE:  # alike, which says nothing of others
        return ""
    known = f"sd of a seed {sd:.2g}, from {older} older configurations"
    return f"{seeds} {kind} can show differences of {least * sd:.2g} points or more ({known})"


def older_noise(studies: Sequence[Study], objective: Objective) -> tuple[float, int]:
    """The sd of a seed in studies, and the number of configurations that it is from.

    Args:
        studies: Running or finished; those without such scores are left out.
        objective: The score.
    """
    squares, df, count = 0.0, 0, 0
    for study in studies:
        try:
            blocks = Configurations.read(study, objective).seed_blocks
        except TuneSentclError:
            continue  # the search itself reports what it cannot read
        if blocks.df > 0:
            squares += blocks.df * blocks.sd**2
            df += blocks.df
            count += len(blocks.names) - len(blocks.apart)
    return (math.sqrt(squares / df) if df else math.nan), count
