"""Confirmations: winner, baseline and runner-up train with new seeds; what these can decide.

The first confirmation of a choice has as many seeds as the user asks for. Each later one has twice
the seeds of the previous one, and reuses all of those.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import Comparison
from tune_sentcl.judging.evidence import Evidence, constants
from tune_sentcl.judging.statistics import chance_of, critical_t, mean, sd, smallest_shown
from tune_sentcl.results.standings import Standings
from tune_sentcl.store.manifest import Confirmation, SeedPlan

MOST_SEEDS = 100
"""The largest number of confirmation seeds to propose."""
# Users choose small seeds, so a later search with more seeds does not reuse confirmation seeds.
_FIRST = 1000
# In standard deviations over seeds: a larger observed difference is partly luck.
_LARGEST_EFFECT = 2.0
# A difference of more than this many standard deviations over seeds cannot be luck, and this
# number of seeds shows it.
_OBVIOUS_EFFECT, _FEWEST = 4.0, 3
# A further confirmation is worthwhile if one of the doublings up to `MOST_SEEDS` decides a
# comparison with at least this probability.
_WORTHWHILE = 0.3

Pair = tuple[Configuration, Configuration]


def confirming_seeds(
    standings: Standings, wanted: int, used: Collection[int]
) -> tuple[tuple[int, ...], str]:
    """The seeds of the next confirmation, and a message on their number (maybe empty).

    The last confirmation continues if it compared the same configurations and has as many seeds.

    Args:
        standings: The standings of the study.
        wanted: How many seeds the user asks for, including those of earlier confirmations.
        used: Seeds that a trial of the study has used.
    """
    compared, last = standings.contenders(), _last(standings)
    earlier = standings.plan.confirmations if standings.plan else ()
    known = {*used}.union(*(look.seeds for look in earlier))
    new = (seed for seed in count(_FIRST) if seed not in known)
    if last is None or (wanted > len(last.seeds) and _has_lost(standings, last)):
        return tuple(islice(new, wanted)), ""
    size = len(last.seeds)
    while size < wanted:
        size *= 2
    told = ""
    if wanted not in [len(look.seeds) for look in earlier] and wanted != size:
        told = (
            f"{size} confirmation seeds are used instead of {wanted}, because each "
            f"confirmation of {len(compared)} configurations has twice the seeds of the one "
            "before"
        )
    return (*last.seeds, *islice(new, size - len(last.seeds))), told


def with_confirmation(plan: SeedPlan, last: Confirmation) -> SeedPlan:
    """A plan with this confirmation, and with the doublings that were skipped before it."""
    looks = plan.confirmations
    if last in looks:
        return plan
    before = looks[-1] if looks and looks[-1].configurations == last.configurations else None
    if before and last.seeds[: len(before.seeds)] == before.seeds:
        size = 2 * len(before.seeds)
        while size < len(last.seeds):
            looks = (*looks, replace(last, seeds=last.seeds[:size]))
            size *= 2
    return replace(plan, confirmations=(*looks, last))


def _last(standings: Standings) -> Confirmation | None:
    """The last confirmation, if it compared the present configurations on unused seeds."""
    compared = standings.contenders()
    for last in (standings.plan.confirmations if standings.plan else ())[-1:]:
        is_new = all(each.search_seeds.isdisjoint(last.seeds) for each in compared.values())
        if last.configurations == tuple(compared) and is_new:
            return last
    return None


@dataclass(frozen=True)
class Question:
    """An open question: whether one of two configurations scores higher.

    Attributes:
        pair: The two configurations.
        comparison: The comparison so far; None without one.
    """

    pair: Pair
    comparison: Comparison | None


@dataclass(frozen=True)
class Proposal:
    """The confirmation that `judge` proposes.

    Attributes:
        seeds: How many confirmation seeds it has, including those of earlier confirmations.
        chances: For each question, the probability that this confirmation decides, and the
            difference, in sds over seeds, for which the probability holds.
        is_worthwhile: Whether this or a later confirmation is likely to decide some question.
    """

    seeds: int
    chances: Sequence[tuple[float, float]]
    is_worthwhile: bool


def proposed(standings: Standings, evidence: Evidence, questions: Sequence[Question]) -> Proposal:
    """The next confirmation for some open questions; the most important question comes first."""
    simulated = _Chances(standings, evidence)
    last = _last(standings)
    if last is None or _has_lost(standings, last):
        return simulated.first(questions)
    return simulated.doubled(len(last.seeds), questions)


def _has_lost(standings: Standings, look: Confirmation) -> bool:
    """Whether a confirmation lost a seed; then none of its doublings can decide."""
    compared = standings.contenders().values()
    return any(not each.lost().keys().isdisjoint(look.seeds) for each in compared)


class _Chances:
    def __init__(self, standings: Standings, evidence: Evidence) -> None:
        self._standings, self._evidence = standings, evidence
        compared = standings.contenders().values()
        self._count = len(compared)
        self._drawn = len(compared) - len(constants(compared))
        self._number = len(evidence.plan.confirmations)

    def first(self, questions: Sequence[Question]) -> Proposal:
        """The first confirmation of a choice: as many seeds as the first question needs.

        If no number of seeds suffices for the first question, the next question decides.
        """
        effects = [self._effect(each) for each in questions]
        seeds = next(filter(None, map(self._seeds_for, effects)), None)
        size, level = seeds or MOST_SEEDS, self._evidence.level(self._number)
        chances = [(self._before(effect, size, level), effect) for effect in effects]
        return Proposal(size, chances, seeds is not None)

    def doubled(self, seeds: int, questions: Sequence[Question]) -> Proposal:
        """The confirmation with twice the seeds of the last one."""
        sizes, chances = [2 * seeds], list[list[tuple[float, float]]]()
        while 2 * sizes[-1] <= MOST_SEEDS:
            sizes.append(2 * sizes[-1])
        for later, size in enumerate(sizes):
            level = self._evidence.level(self._number + later)
            chances.append([self._after(each, size, level) for each in questions])
        likely = any(chance >= _WORTHWHILE for own in chances for chance, _ in own)
        return Proposal(sizes[0], chances[0], likely)

    def _effect(self, question: Question) -> float:
        """The difference that confirmation seeds should show for a question, in sds of a seed."""
        a, b = (mean(list(each.chosen_scores().values())) for each in question.pair)
        difference, noise = abs(a - b), self._standings.seed_blocks.sd
        if question.comparison is not None:
            difference = abs(question.comparison.difference)
            noise = question.comparison.error * math.sqrt(question.comparison.n / 2)
        elif math.isnan(noise):
            # Only one of the two configurations depends on the seed, so its own scores give the
            # noise.
            own = (sd(list(each.chosen_scores().values())) for each in question.pair)
            noise = max(filter(math.isfinite, own), default=math.nan)
        if not (noise > 0 and math.isfinite(difference)):
            return _LARGEST_EFFECT
        effect = difference / noise
        return effect if effect > _OBVIOUS_EFFECT else min(effect, _LARGEST_EFFECT)

    def _seeds_for(self, effect: float) -> int | None:
        """The smallest number of seeds that shows an effect; None if no number up to 100 does."""
        if effect > _OBVIOUS_EFFECT:
            return _FEWEST
        numbers, level = range(2, MOST_SEEDS + 1), self._evidence.level(self._number)
        # More seeds show smaller differences, so the condition is sorted and can be bisected.
        place = bisect_left(
            numbers,
            True,
            key=lambda n: smallest_shown(n, self._count, level, self._drawn) <= effect,
        )
        return numbers[place] if place < len(numbers) else None

    def _before(self, effect: float, seeds: int, level: float) -> float:
        df = (seeds - 1) * max(self._drawn - 1, 1)
        critical = critical_t(df, self._count, level, with_control=True)
        return chance_of(effect * math.sqrt(seeds / 2), df, critical)

    def _after(self, question: Question, seeds: int, level: float) -> tuple[float, float]:
        """The probability that more seeds decide, if the observed difference is the true one."""
        seen = question.comparison
        if seen is None or not seen.error:
            effect = self._effect(question)
            return self._before(effect, seeds, level), effect
        error = seen.error * math.sqrt(seen.n / seeds)
        df = seen.df * (seeds - 1) / (seen.n - 1)
        together = 2 if seen.procedure == "Bonferroni t" else seen.configurations
        is_control = seen.procedure == "Dunnett"
        critical = critical_t(df, together, level / seen.number, with_control=is_control)
        effect = abs(seen.difference) / (seen.error * math.sqrt(seen.n / 2))
        return chance_of(abs(seen.difference) / error, df, critical), effect
