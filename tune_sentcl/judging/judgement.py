"""Verdicts: whether one configuration of a study scores higher than another."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import (
    PLANNED_SHARE,
    Comparison,
    ComparisonRules,
    Verdict,
)
from tune_sentcl.judging.configurations import Configurations, Named
from tune_sentcl.judging.evidence import Evidence, Source
from tune_sentcl.judging.statistics import (
    critical_t,
    mean,
    sd,
    seeds_that_show,
    sequential_critical,
)
from tune_sentcl.judging.wording import (
    Seeds,
    next_step,
    notes,
    other_collapses,
    sentence,
    unequal_precisions,
)
from tune_sentcl.objective import Objective
from tune_sentcl.store.study import Study

OpponentKind = Literal["named", "baseline", "runner-up", "baseline and runner-up"]

_PLANNED_EFFECT = 2.0
"""The largest difference that seeds are asked for, in sds of the noise: greater ones are luck."""


@dataclass(frozen=True)
class Judgement:
    """One verdict: whether configuration A scores higher than B.

    Attributes:
        asked: Why B was chosen as the opponent.
        a: The configuration that is claimed to score higher.
        b: The configuration that it is compared with.
        objective: The score.
        data: The evaluation data: `toy` or `root`.
        source: The seeds on which the verdict rests; None if nothing can be claimed.
        found: The comparison; None if nothing can be claimed.
        sentence: The result in one sentence.
        seeds_needed: The smallest number of seeds of each that decides with probability 0.8: fresh
            ones of winner, baseline and runner-up, and all of other configurations. None if the
            verdict is decided, or if `max_seeds` do not suffice.
        next_step: The command that runs fresh seeds; empty without one.
        notes: Further remarks.
    """

    asked: OpponentKind
    a: Configuration
    b: Configuration
    objective: str
    data: str
    source: Source | None
    found: Comparison | None
    sentence: str
    seeds_needed: int | None
    next_step: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return self.found.verdict if self.found else "UNDECIDED"

    def row(self) -> dict[str, Any]:
        """The verdict as plain values, with None for what is not finite.

        `a_mean` is over the seeds that took part in the choice, `a_fresh_mean` over the others.
        The other values are those of `Comparison`.
        """
        found = self.found
        names = ("procedure", "difference", "low", "high", "p", "level", "error", "df", "n")
        row = {
            "asked": self.asked,
            "a": self.a.name,
            "b": self.b.name,
            "objective": self.objective,
            "data": self.data,
            "verdict": self.verdict,
            "seeds": self.source,
            "seeds_needed": self.seeds_needed,
            **{name: getattr(found, name) if found else None for name in names},
            "configurations": found.configurations if found else None,
            "sentence": self.sentence,
            "next_step": self.next_step,
            "notes": list(self.notes),
        }
        for side, one in (("a", self.a), ("b", self.b)):
            kinds = (("", one.chosen_scores()), ("_fresh", one.fresh_scores()))
            for name, values in ((f"{side}{kind}", list(found.values())) for kind, found in kinds):
                row |= {f"{name}_mean": mean(values), f"{name}_sd": sd(values)}
                row[f"{name}_n"] = len(values)
        if found and found.n == int(found.n):
            row["n"] = int(found.n)
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }


def judge(
    study: Study,
    a: Named,
    b: Named,
    objective: Objective | None = None,
    rules: ComparisonRules | None = None,
) -> Judgement:
    """Judge whether one configuration of a study scores higher than another.

    Args:
        study: Running or finished.
        a: The configuration that is claimed to score higher.
        b: The configuration that it is compared with.
        objective: The score; None: the first that the study's last search maximized.
        rules: The limits of the comparison.

    Raises:
        StudyError: A name does not match exactly one configuration with that score, or both names
            match the same one.
    """
    configurations = Configurations.read(study, objective)
    first, second = configurations.named(a), configurations.named(b)
    if first is second:
        rule = "a configuration cannot be compared with itself"
        raise configurations.fault(configurations.title(first), rule, "Name another one.")
    evidence = Evidence(configurations, rules or ComparisonRules())
    return _judged(evidence, "named", (first, second))


def judge_winner(
    study: Study,
    baseline: Named | None = None,
    objective: Objective | None = None,
    rules: ComparisonRules | None = None,
) -> list[Judgement]:
    """Judge the best configuration of a search against the baseline, and the runner-up.

    The winner and the runner-up are the first two of `Configurations.scored`. If the baseline is
    the winner, the runner-up is judged against it. With a named baseline, the winner is judged
    against it alone.

    Args:
        study: Running or finished.
        baseline: The baseline; None: see `Configurations.baselines`.
        objective: The score to judge; None: the first that the last search maximized.
        rules: The limits of the comparisons.

    Raises:
        StudyError: Fewer than two configurations have scores, or there is no baseline.
    """
    configurations = Configurations.read(study, objective)
    if len(configurations.scored()) < 2:
        rule = f"needs two configurations with {configurations.objective}"
        raise configurations.fault("", rule, "Run more of its space.")
    if baseline is None:
        return judge_first(configurations, configurations.baseline(), rules)
    return judge_first(configurations, configurations.named(baseline), rules)[:1]


def judge_first(
    configurations: Configurations,
    baseline: Configuration | None,
    rules: ComparisonRules | None = None,
) -> list[Judgement]:
    """Judge the winner of configurations that have been read; see `judge_winner`.

    Args:
        configurations: The configurations; at least two have both scores.
        baseline: One of them; None: judge the winner against the runner-up alone.
        rules: The limits of the comparisons.
    """
    evidence, scored = (
        Evidence(configurations, rules or ComparisonRules()),
        configurations.scored(),
    )
    best, second, *_ = scored
    known = {best.name, second.name, *([baseline.name] if baseline else ())}
    others_told = (*other_collapses(evidence, known), *unequal_precisions(configurations, known))
    passed = (*_ranking_notes(configurations, scored), *others_told)
    if baseline is best:
        found = _judged(evidence, "baseline", (second, best))
        told = "The winner is the baseline; the best other is judged against it."
        return [_noted(found, told, *passed)]
    others: list[tuple[OpponentKind, Configuration]] = [("runner-up", second)]
    if baseline is second:
        others = [("baseline and runner-up", second)]
    elif baseline is not None:
        others.insert(0, ("baseline", baseline))
    first, *rest = (_judged(evidence, asked, (best, one)) for asked, one in others)
    return [_noted(first, *passed), *rest]


def _noted(found: Judgement, *notes: str) -> Judgement:
    return replace(found, notes=(*notes, *found.notes))


def _ranking_notes(
    configurations: Configurations, scored: Sequence[Configuration]
) -> Iterator[str]:
    """The first configuration that has a higher mean than the winner, and why it has not won."""
    first, *others = scored
    scores = {one.name: list(one.chosen_scores(1).values()) for one in scored}
    best = mean(scores[first.name])
    for one in [other for other in others if mean(scores[other.name]) > best][:1]:
        count, most, lost = len(scores[one.name]), len(scores[first.name]), one.chosen_lost(1)
        why = f"has {count} seed{'s'[: count - 1]} and the winner {most}"
        if lost:
            why = f"lost {len(lost)} of {len(lost) + count} seeds"
        yield f"{configurations.title(one)} has a higher mean, but {why}: it is not the winner."


def _judged(
    evidence: Evidence, asked: OpponentKind, pair: tuple[Configuration, Configuration]
) -> Judgement:
    configurations = evidence.configurations
    a, b = (configurations.title(one) for one in pair)
    answer = evidence.compare(*pair, named=asked == "named")
    source, found = (None, None) if isinstance(answer, str) else answer
    objective = str(configurations.objective)
    if found is None:
        text = f"Whether {a} scores higher than {b} on {objective} is undecided: {answer}."
    else:
        text = sentence((a, b), objective, found, source, evidence.rules)
    undecided = found is None or (found.verdict == "UNDECIDED" and not found.fallen)
    needed = _seeds_needed(evidence, pair, found) if undecided else None
    return Judgement(
        asked=asked,
        a=pair[0],
        b=pair[1],
        objective=objective,
        data=configurations.data,
        source=source,
        found=found,
        sentence=text,
        seeds_needed=needed.number if needed else None,
        next_step=next_step(configurations.command, needed) if needed else "",
        notes=tuple(notes(evidence, pair, found, needed)),
    )


def _seeds_needed(
    evidence: Evidence, pair: tuple[Configuration, Configuration], found: Comparison | None
) -> Seeds:
    """The seeds that decide, if the difference seen is the true one."""
    rules, plan = evidence.rules, evidence.configurations.plan
    drawn = [one for one in pair if one.constant_score() is None]
    is_confirmed = {one.name for one in pair} <= evidence.confirmed
    before = max(
        (len(one.fresh if is_confirmed else one.chosen_scores()) for one in drawn), default=0
    )
    count = len(evidence.confirmed) if is_confirmed else len(evidence.configurations.found)
    found_all = evidence.configurations.found
    num_drawn = sum(found_all[name].constant_score() is None for name in evidence.confirmed)
    planned = is_confirmed and not before
    share = PLANNED_SHARE if planned else 1 - PLANNED_SHARE if plan else 1.0
    alpha = share * rules.alpha

    def critical_of(seeds: int) -> tuple[float, float]:
        # A pair with a constant, and one of two named ones, is judged by its own differences.
        df = (seeds - 1) * (num_drawn - 1 if is_confirmed and len(drawn) == len(pair) else 1)
        if not planned:
            needed = sequential_critical(df, seeds, alpha / (count * (count - 1) / 2))
            return (needed if seeds > before else math.inf), df
        if len(drawn) < len(pair):
            return critical_t(df, 2, alpha / max(1, count - 1), with_control=True), df
        return critical_t(df, count, alpha, with_control=True), df

    noise = found.noise if found is not None else evidence.noise
    means = [mean(list(one.chosen_scores().values())) for one in pair]
    seen = found.difference if found is not None else means[0] - means[1]
    effect, margin, is_seen = _PLANNED_EFFECT, 0.0, noise > 0 and not math.isnan(seen)
    if is_seen:
        effect, margin = min(abs(seen) / noise, _PLANNED_EFFECT), rules.smallest / noise
    number = seeds_that_show(effect, margin, critical_of, rules.max_seeds) if drawn else None
    return Seeds(number, is_fresh=is_confirmed, is_seen=is_seen)
