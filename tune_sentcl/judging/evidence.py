"""Comparisons that a study's seeds support, and the differences that further seeds can show."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import ALPHA, Comparison, Family
from tune_sentcl.judging.statistics import smallest_shown
from tune_sentcl.store.manifest import Confirmation, SeedPlan
from tune_sentcl.store.union import TOLERANCE

Source = Literal["confirm", "planned"]
"""`confirm`: confirmation seeds; `planned`: search seeds, fixed before the first score."""

UNFINISHED = "not all confirmation trials have finished"
"""The reason why an unfinished confirmation supports no claim."""

OPEN = "not all planned trials have finished"
"""The reason why an unfinished search supports no claim."""

CONFIRMATION_SEEDS = 8
"""The number of confirmation seeds that is proposed before any score is known.

It is the smallest number with which Dunnett's test at level `ALPHA` establishes, with probability
`POWER`, that the winner is two standard deviations of a seed better than the runner-up. It is
computed for winner, runner-up and an untrained baseline, which has no noise and adds no degree of
freedom: 8 seeds show 1.93 sds, 7 seeds 2.15, and 3 seeds 6.4.
"""
_CONFIRMED = 3  # a confirmation compares the winner, the baseline and the runner-up

_NEXT_LEVEL = 0.2
"""The level of a confirmation, as a share of the level of the previous confirmation.

The levels of all confirmations of a choice add up to 1.25 alpha = 5 %. Their sizes are fixed
before the first seed is seen: each has twice the seeds of the previous one. By Bonferroni's
inequality, asking for another confirmation after seeing one does not make false claims more
frequent, although confirmations share seeds.
"""


@dataclass(frozen=True, eq=False)
class Evidence:
    """A study's planned seeds and confirmation seeds.

    Attributes:
        tried: The configurations by id.
        plan: The planned search seeds and the confirmations.
        baselines: The possible baselines.
        title: Maps a configuration to its name in messages.
        collapsed: The collapsed seeds of each configuration that has any.
        alpha: The probability of a false claim among all comparisons of the planned seeds, and
            among those of the first confirmation.
        smallest: A difference of at most this many points counts as no difference.
    """

    tried: Mapping[str, Configuration]
    plan: SeedPlan
    baselines: Sequence[str]
    title: Callable[[Configuration], str]
    collapsed: Mapping[str, Sequence[int]]
    alpha: float = ALPHA
    smallest: float = TOLERANCE
    _families: dict[tuple[Confirmation, float, str], Family | str] = field(default_factory=dict)

    def compare(
        self, a: Configuration, b: Configuration, *, named: bool = False
    ) -> Comparison | str:
        """Compare two configurations, or say why nothing can be claimed about them.

        Args:
            a: The configuration that is claimed to score higher.
            b: The configuration with which `a` is compared.
            named: Whether the user named both, possibly after seeing scores. The correction then
                counts all pairs of configurations, even if `b` is the baseline.

        Returns:
            The comparison; with several confirmations, the first that decides, else the last.
        """
        plan, source = self.plan, self.source(a, b)
        if source is None:
            return self._at(Confirmation((), (a.name, b.name)), (a, b), "", self.alpha)
        if source == "planned":
            if plan.configurations is None:
                is_halved = "the search trained only the best configurations with all seeds"
                return (
                    is_halved
                    if plan.seeds
                    else ("the study has no seeds that were planned before the search")
                )
            control = self.baselines[0] if len(self.baselines) == 1 and not named else ""
            return self._at(self._planned, (a, b), control, self.alpha)
        last: Comparison | str = ""
        for number, look in self._looks(a, b):
            control = "" if named else look.configurations[0]
            last = self._at(look, (a, b), control, self.level(number))
            if not isinstance(last, str) and last.verdict != "UNDECIDED":
                break
        return last

    def _looks(self, a: Configuration, b: Configuration) -> list[tuple[int, Confirmation]]:
        """The confirmations of both configurations whose seeds are not search seeds of either."""
        return [
            (number, look)
            for number, look in enumerate(self.plan.confirmations)
            if {a.name, b.name} <= {*look.configurations}
            and all(one.search_seeds.isdisjoint(look.seeds) for one in (a, b))
        ]

    def level(self, number: int) -> float:
        """The probability of a false claim by confirmation `number`, counted from 0."""
        return self.alpha * _NEXT_LEVEL**number

    def source(self, a: Configuration, b: Configuration) -> Source | None:
        """The seeds to compare: `confirm` if a confirmation has both; None for two constants."""
        if len(constants((a, b))) == 2:
            return None
        return "confirm" if self._looks(a, b) else "planned"

    def _at(
        self, look: Confirmation, pair: Sequence[Configuration], control: str, alpha: float
    ) -> Comparison | str:
        """Compare two configurations on a confirmation's seeds, or say why that is impossible.

        A configuration that lost a seed is left out, but still counts as one of the compared.
        """
        kind = self.source(*pair)
        for candidate in pair:
            if lost := candidate.lost().keys() & {*look.seeds}:
                what = "confirmation seed" if kind == "confirm" else "seed"
                return f"{self.title(candidate)} lost {len(lost)} {what}{'s'[: len(lost) - 1]}"
        if (look, alpha, control) not in self._families:
            self._families[look, alpha, control] = self._family(look, control, alpha)
        family = self._families[look, alpha, control]
        if isinstance(family, str):
            return family
        for candidate in pair:
            if candidate.name not in look.configurations:
                return f"{self.title(candidate)} was not trained with the {kind} seeds"
        return family.compare(pair[0].name, pair[1].name, self.smallest) or (
            "one seed does not show the noise between seeds"
        )

    def _family(self, look: Confirmation, control: str, alpha: float) -> Family | str:
        """The configurations of a confirmation with their scores, or why it supports no claim."""
        seeds = {*look.seeds}
        tried = [self.tried.get(name) for name in look.configurations]
        members = [candidate for candidate in tried if candidate and candidate.results]
        fixed = constants(members)
        drawn = {
            candidate.name: candidate.scores()
            for candidate in members
            if candidate.name not in fixed and candidate.lost().keys().isdisjoint(seeds)
        }
        if len(members) < len(tried) or any(not own.keys() >= seeds for own in drawn.values()):
            return UNFINISHED if look in self.plan.confirmations else OPEN
        scores = {name: {seed: own[seed] for seed in look.seeds} for name, own in drawn.items()}
        return Family(scores, fixed, len(members), alpha, control, self.collapsed)

    @cached_property
    def _planned(self) -> Confirmation:
        """The grid and the first sampled configurations; a missing one has an empty name."""
        plan = self.plan
        sampled = [each.name for each in self.tried.values() if each.origin == "sampler"]
        count = plan.configurations or 0
        there = (name for name in sampled if self.tried[name].results)
        names = [*dict.fromkeys((*plan.grid, *there)), *[""] * count]
        return Confirmation(plan.seeds, tuple(names[:count]))


def constants(configurations: Iterable[Configuration]) -> dict[str, float]:
    """The scores of the configurations that do not depend on the seed."""
    scores = {candidate.name: candidate.constant_score() for candidate in configurations}
    return {name: score for name, score in scores.items() if score is not None}


def shown(plan: SeedPlan, confirm: int, noise: tuple[float, int]) -> str:
    """Say, before a search runs, which differences its seeds can show.

    The text is empty for a single configuration, and if older configurations scored alike with
    every seed.

    Args:
        plan: The seeds of the search.
        confirm: The number of confirmation seeds that follow.
        noise: From `older_noise`.
    """
    if plan.configurations == 1:
        return ""
    seeds, kind, count = len(plan.seeds), "seeds", plan.configurations or _CONFIRMED
    if confirm:
        seeds, kind, count = confirm, "confirmation seeds", _CONFIRMED
    elif plan.configurations is None and seeds > 1:
        seeds, kind = CONFIRMATION_SEEDS, f"confirmation seeds (--confirm {CONFIRMATION_SEEDS})"
    least = smallest_shown(seeds, count, ALPHA)
    if math.isinf(least):
        seed = f"1 {kind.removesuffix('s')}"
        more = f"give --seeds 0,1,2 or --confirm {CONFIRMATION_SEEDS}"
        return f"{seed} cannot show whether a difference is luck: {more}"
    sd, older = noise
    if math.isnan(sd) or sd <= TOLERANCE:
        # Equal scores do not show how much the scores of other configurations vary.
        return ""
    known = f"standard deviation over seeds {sd:.2g}, from {older} earlier configurations"
    return f"{seeds} {kind} can show differences of {least * sd:.2g} points or more ({known})"
