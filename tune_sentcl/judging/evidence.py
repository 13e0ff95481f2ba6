"""The scores of a study that may support a claim, and the comparisons that they allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import PLANNED_SHARE, Comparison, ComparisonRules, Family
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.seed_blocks import SeedBlocks
from tune_sentcl.store.manifest import SeedPlan

Source = Literal["fresh", "planned", "sequential"]
"""Seeds that no choice saw; seeds planned before any score; any number of seeds."""


@dataclass(frozen=True)
class Evidence:
    """A study's families of comparisons.

    Fresh seeds go first, and then count alone. Planned seeds have four fifths of the error
    probability, and all later looks the rest.

    Attributes:
        configurations: The configurations.
        rules: The limits of the comparisons.
    """

    configurations: Configurations
    rules: ComparisonRules

    def compare(
        self, a: Configuration, b: Configuration, *, named: bool = False
    ) -> tuple[Source | None, Comparison] | str:
        """Compare two configurations, or say why nothing can be claimed of them.

        Args:
            a: The configuration that is claimed to score higher.
            b: The one that it is compared with.
            named: Whether both were named, maybe after their scores had been seen. Such a pair is
                one of all pairs, even if it holds the baseline.
        """
        names = {a.name, b.name}
        if a.constant_score() is not None and b.constant_score() is not None:
            families: list[tuple[Source | None, Family]] = [
                (None, self._family({}, 0, fixed=True))
            ]
        else:
            families = [*self._fresh] if self._rests_on_fresh(a, b) else [*self._chosen]
            if reason := self._refused(a, b):
                return reason
        if named:
            families = [(source, replace(family, control=None)) for source, family in families]
        found = [
            (source, comparison)
            for source, family in families
            if names <= family.names
            and (comparison := family.compare(a.name, b.name, self.rules.smallest))
        ]
        decided = [one for one in found if one[1].verdict != "UNDECIDED"]
        if found:
            return (decided or found)[0]
        common = a.scores().keys() & b.scores().keys()
        return "one seed shows no noise" if common else "they have no seeds in common"

    def _rests_on_fresh(self, a: Configuration, b: Configuration) -> bool:
        """Whether fresh seeds were run of both, or of one beside a constant."""
        return all(one.fresh or one.constant_score() is not None for one in (a, b))

    def _refused(self, a: Configuration, b: Configuration) -> str:
        """Why the seeds are not those that chance alone has left; empty if they are."""
        is_fresh = self._rests_on_fresh(a, b)
        if self.selected and not is_fresh:
            return self.selected
        for one in (a, b):
            lost = one.lost().keys() & one.fresh if is_fresh else one.chosen_lost()
            if lost:
                kind = "fresh seed" if is_fresh else "seed"
                title = self.configurations.title(one)
                return f"{title} lost {len(lost)} {kind}{'s'[: len(lost) - 1]}"
        return ""

    @cached_property
    def _all(self) -> tuple[dict[str, dict[int, float]], SeedBlocks]:
        """All scores that depend on the seed, and their noise."""
        scores = self.configurations.drawn_scores()
        return scores, SeedBlocks(scores)

    @property
    def collapsed(self) -> dict[str, list[int]]:
        """The collapsed seeds of each configuration, among all its seeds."""
        return self._all[1].collapsed

    @property
    def noise(self) -> float:
        """The standard deviation of one score, from all configurations; NaN if it is unknown."""
        return self._all[1].sd

    @cached_property
    def confirmed(self) -> set[str]:
        """The configurations that fresh seeds would compare."""
        found = (*self.configurations.scored()[:2], *self.configurations.baselines()[:1])
        return {one.name for one in found}

    @cached_property
    def selected(self) -> str:
        """Why the scores decided which configurations have all seeds; empty if they did not."""
        plan, found = self.configurations.plan, self._tried
        if any("pruned" in one.lost().values() for one in found):
            return "the search stopped configurations by their scores"
        most = max((len(one.chosen_scores()) for one in found), default=0)
        wanted = set(plan.seeds) if plan else set()
        running = plan is not None and not plan.raced and len(found) <= (plan.configurations or 0)
        for one in found:
            lacks = (
                wanted - one.chosen_scores().keys() if wanted else len(one.chosen_scores()) < most
            )
            if one.origin != "sampler" or running or one.constant_score() is not None:
                continue
            if lacks and not one.chosen_lost():
                return "the search gave further seeds to the best configurations alone"
        return ""

    @property
    def _tried(self) -> list[Configuration]:
        """The configurations with a seed that took part in the choice."""
        found = self.configurations.found.values()
        return [c for c in found if c.chosen_scores() or c.lost().keys() - c.fresh]

    @cached_property
    def _fresh(self) -> Sequence[tuple[Source, Family]]:
        """The families of fresh seeds."""
        plan = self.configurations.plan
        there = [one for one in self.configurations.found.values() if one.fresh]
        whole = [one for one in there if not one.fresh & one.lost().keys()]
        named = [self.configurations.found.get(name) for name in (plan.fresh if plan else ())]
        scores = {one.name: one.fresh_scores() for one in whole if one.constant_score() is None}
        if not scores:
            return ()
        drawn = [one.name for one in named if one and one.constant_score() is None]
        families: list[tuple[Source, Family]] = []
        if (
            plan
            and drawn
            and all(scores.get(n, {}).keys() >= set(plan.fresh_seeds) for n in drawn)
        ):
            first = {n: {s: scores[n][s] for s in plan.fresh_seeds} for n in drawn}
            family = self._family(
                first, len(named), fixed=True, control=plan.fresh[0], among=named
            )
            families.append(("fresh", family))
            if scores == first:
                return families
        later = self._family(scores, len(scores), fixed=False, has_plan=bool(drawn))
        return [*families, ("fresh", later)]

    @cached_property
    def _chosen(self) -> Sequence[tuple[Source, Family]]:
        """The families of the seeds that took part in the choice."""
        families: list[tuple[Source, Family]] = []
        plan, tried = self.configurations.plan, self._tried
        whole = self._scores([one for one in tried if not one.chosen_lost()])
        if plan and plan.configurations:
            first = self._planned(plan)
            drawn = [c for c in first if c.constant_score() is None and not c.chosen_lost()]
            ran_all = all(c.chosen_scores().keys() >= set(plan.seeds) for c in drawn)
            if drawn and ran_all and len(first) == plan.configurations:
                scores = {c.name: {s: c.scores()[s] for s in plan.seeds} for c in drawn}
                plain = self.configurations.baselines()
                control = plain[0].name if len(plain) == 1 and plain[0] in first else None
                family = self._family(scores, len(first), fixed=True, control=control)
                families.append(("planned", family))
                if scores == whole and len(first) == len(tried):
                    return families
        later = self._family(whole, len(tried), fixed=False, has_plan=plan is not None)
        return [*families, ("sequential", later)]

    def _planned(self, plan: SeedPlan) -> list[Configuration]:
        """The planned configurations: the grid, and as many sampled ones, the first ones first."""
        grid = [one for one in self._tried if one.name in plan.grid]
        if len(grid) < len(plan.grid):
            return []
        sampled = [one for one in self._tried if one.origin == "sampler" and one not in grid]
        return [*grid, *sampled][: plan.configurations]

    def _family(
        self,
        scores: dict[str, dict[int, float]],
        tried: int,
        *,
        fixed: bool,
        control: str | None = None,
        has_plan: bool = True,
        among: Sequence[Configuration | None] = (),
    ) -> Family:
        share = PLANNED_SHARE if fixed else 1 - PLANNED_SHARE if has_plan else 1.0
        constants = {
            one.name: score
            for one in among or self.configurations.found.values()
            if one is not None and (score := one.constant_score()) is not None
        }
        return Family(
            scores,
            constants,
            tried,
            self.rules.alpha * share,
            fixed,
            control,
            frozenset(self.collapsed),
            self._all[1] if scores == self._all[0] else None,
        )

    def _scores(self, found: Sequence[Configuration]) -> dict[str, dict[int, float]]:
        return {one.name: one.chosen_scores() for one in found if one.constant_score() is None}
