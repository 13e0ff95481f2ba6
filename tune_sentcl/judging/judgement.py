"""Verdicts: whether one configuration of a study scores higher than another."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tune_sentcl.judging.comparing import (
    MIN_SEEDS,
    Comparison,
    ComparisonRules,
    Scores,
    Verdict,
    compare,
    compare_constants,
)
from tune_sentcl.judging.contenders import Contender, Contenders, Named
from tune_sentcl.judging.statistics import bootstrap_interval, mean, sd
from tune_sentcl.objective import Objective
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.reading.union import TOLERANCE

OpponentKind = Literal["named", "baseline", "runner-up", "baseline and runner-up"]


@dataclass(frozen=True)
class Judgement:
    """One verdict: whether configuration A scores higher than B.

    Attributes:
        asked: Why B was chosen as the opponent.
        a: The configuration that is claimed to score higher.
        b: The configuration that it is compared with.
        objective: The score.
        data: The evaluation data: `toy` or `root`.
        found: The comparison over seeds.
        sentence: The result in one sentence.
        notes: Further remarks.
    """

    asked: OpponentKind
    a: Contender
    b: Contender
    objective: str
    data: str
    found: Comparison
    sentence: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return self.found.verdict

    def row(self) -> dict[str, Any]:
        """The verdict as plain values, with None for what is not finite.

        `difference`, `sd` and `n` describe the differences per seed, A minus B. `low` and `high`
        hold at all times and for all comparisons of the study together; `bootstrap_low` and
        `bootstrap_high` hold for this comparison alone. `a_fresh_...` describe the seeds that the
        search did not use for ranking. `a_estimate` is what A is ranked by (`Contenders.scored`).
        """
        found, values = self.found, self.found.values
        bootstrap = bootstrap_interval(values)
        fresh = [self.a.scores[seed] for seed in sorted(self.a.fresh)]
        row = {
            "asked": self.asked,
            "a": self.a.name,
            "b": self.b.name,
            "objective": self.objective,
            "data": self.data,
            "verdict": found.verdict,
            "more_seeds": found.more_seeds,
            "reverse_established": found.reverse,
            "difference": mean(values),
            "sd": sd(values),
            "n": len(values),
            "paired": found.paired,
            "drawn": found.drawn,
            "low": found.low,
            "high": found.high,
            "bootstrap_low": bootstrap[0],
            "bootstrap_high": bootstrap[1],
            "p": found.p,
            "p_corrected": found.p_corrected,
            "comparisons": found.comparisons,
            **_over_seeds("a", list(self.a.scores.values())),
            "a_estimate": self.a.estimate,
            **_over_seeds("b", list(self.b.scores.values())),
            "b_estimate": self.b.estimate,
            **_over_seeds("a_fresh", fresh),
            "sentence": self.sentence,
            "notes": list(self.notes),
        }
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
    contenders = Contenders.read(study, objective)
    first, second = contenders.named(a), contenders.named(b)
    if first is second:
        rule = "a configuration cannot be compared with itself"
        raise contenders.fault(contenders.title(first), rule, "Name another one.")
    return _judged(contenders, "named", (first, second), rules or ComparisonRules())


def judge_winner(
    study: Study,
    baseline: Named | None = None,
    objective: Objective | None = None,
    rules: ComparisonRules | None = None,
) -> list[Judgement]:
    """Judge the best configuration of a search against the baseline and the runner-up.

    The winner and the runner-up are the first two of `Contenders.scored`. If the baseline is the
    winner, the runner-up is judged against it.

    Args:
        study: Running or finished.
        baseline: The baseline; None: see `Contenders.baseline`.
        objective: The score to judge; None: the first that the last search maximized.
        rules: The limits of the comparisons.

    Raises:
        StudyError: Fewer than two configurations have scores, or there is no baseline.
    """
    contenders = Contenders.read(study, objective)
    if len(contenders.scored()) < 2:
        rule = f"needs two configurations with {contenders.objective}"
        raise contenders.fault("", rule, "Run more of its space.")
    plain = contenders.baseline() if baseline is None else contenders.named(baseline)
    return judge_first(contenders, plain, rules)


def judge_first(
    contenders: Contenders, baseline: Contender | None, rules: ComparisonRules | None = None
) -> list[Judgement]:
    """Judge the winner of configurations that have been read; see `judge_winner`.

    Args:
        contenders: The configurations; at least two have both scores.
        baseline: One of them; None: judge the winner against the runner-up alone.
        rules: The limits of the comparisons.
    """
    rules, scored = rules or ComparisonRules(), contenders.scored()
    best, second, *_ = scored
    if baseline is best:
        found = _judged(contenders, "baseline", (second, best), rules)
        note = "B is the baseline and the winner; A is the best of the others."
        return [_noted(found, note, *_ranking_notes(contenders, scored))]
    passed = tuple(_ranking_notes(contenders, scored))
    if baseline is second:
        found = _judged(contenders, "baseline and runner-up", (best, second), rules)
        return [_noted(found, *passed)]
    others: list[tuple[OpponentKind, Contender]] = [("runner-up", second)]
    if baseline is not None:
        others.insert(0, ("baseline", baseline))
    first, *rest = (_judged(contenders, asked, (best, one), rules) for asked, one in others)
    return [_noted(first, *passed), *rest]


def _noted(found: Judgement, *notes: str) -> Judgement:
    return replace(found, notes=(*notes, *found.notes))


def _ranking_notes(contenders: Contenders, scored: Sequence[Contender]) -> Iterator[str]:
    """The winner's estimate, and the first configuration with a higher mean and lost seeds."""
    yield from contenders.ranked_by(scored[0])
    first, *others = scored
    passed = (c for c in others if c.num_missed > first.num_missed and c.mean > first.mean)
    for one in list(passed)[:1]:
        seeds = f"{one.num_missed} of {one.num_missed + len(one.ranking_scores)} seeds"
        yield f"{contenders.title(one)} has a higher mean, but lost {seeds}: it is not the winner."


def _judged(
    contenders: Contenders,
    asked: OpponentKind,
    pair: tuple[Contender, Contender],
    rules: ComparisonRules,
) -> Judgement:
    a, b = pair
    tried = len(contenders.found)
    if a.constant_score is not None and b.constant_score is not None:
        found = compare_constants(a.constant_score - b.constant_score, tried, TOLERANCE)
    else:
        found = compare(_evidence(contenders, pair), a.name, b.name, rules, tried)
    titles = (contenders.title(a), contenders.title(b))
    objective = str(contenders.objective)
    selected = _selected(pair, paired=found.paired)
    if selected:
        found = replace(found, verdict="NOT ESTABLISHED", more_seeds=None, reverse=False)
    drawn = [t for one, t in zip(pair, titles, strict=True) if one.constant_score is None]
    sentence = _sentence(titles, objective, found, rules, drawn, selected=selected)
    notes = tuple(_notes(pair, titles, found))
    return Judgement(asked, a, b, objective, contenders.data, found, sentence, notes)


def _evidence(contenders: Contenders, pair: tuple[Contender, Contender]) -> Scores:
    """The scores of the two configurations and of all others that Holm's correction may use.

    Pairs that lost seeds have no valid p-value and are left out; they still count as comparisons.
    A score that does not depend on the seed is repeated for every seed.
    """
    others = (
        [] if pair[0].informative_lost or pair[1].informative_lost else contenders.found.values()
    )
    usable = (*pair, *(one for one in others if one.scores and not one.informative_lost))
    seeds = dict.fromkeys(seed for one in usable for seed in one.scores)
    constants = [(one, one.constant_score) for one in usable]
    return {
        one.name: one.scores if constant is None else dict.fromkeys(seeds, constant)
        for one, constant in constants
    }


def _selected(pair: tuple[Contender, Contender], *, paired: bool) -> bool:
    """Whether failures or rungs decided which seeds are compared.

    A configuration whose bad seeds were stopped looks better than it is. With paired seeds, a
    lost seed matters only if the other configuration has it.
    """
    both_orders = (pair, pair[::-1])
    return any(
        one.informative_lost.keys() & other.scores.keys()
        if paired and other.constant_score is None
        else one.informative_lost
        for one, other in both_orders
    )


def _sentence(
    titles: tuple[str, str],
    objective: str,
    found: Comparison,
    rules: ComparisonRules,
    drawn: Sequence[str],
    *,
    selected: bool,
) -> str:
    """State the result; `drawn` holds the titles for which more seeds would help."""
    a, b = titles
    count = len(found.values)
    seeds = f"{count} {'paired ' if found.paired else ''}{'seed' if count == 1 else 'seeds'}"
    if not found.drawn and found.p > rules.alpha:
        return f"{a} and {b} score the same on {objective}; no seed changes either score."
    if not found.drawn:
        higher, lower = (b, a) if found.reverse else (a, b)
        return (
            f"{higher} scores higher than {lower} on {objective}, by {abs(found.values[0]):.2f} "
            "points (no seed changes either score)."
        )
    if len(found.values) < MIN_SEEDS:
        return (
            f"{a} and {b} cannot be compared on {objective}: {seeds}, and {MIN_SEEDS} are needed."
        )
    if found.verdict == "ESTABLISHED" or found.reverse:
        higher, lower = (b, a) if found.reverse else (a, b)
        low, high = sorted((abs(found.low), abs(found.high)))
        return (
            f"{higher} scores higher than {lower} on {objective}, by "
            f"{abs(mean(found.values)):.2f} points ({seeds}; anytime-valid t-test, "
            f"p = {found.p_corrected:.2g} by Holm over {found.comparisons} comparisons; "
            f"{1 - rules.alpha:.0%} interval {low:.2f} to {high:.2f})."
        )
    whose = "each" if len(drawn) == len(titles) else ", ".join(drawn)
    seen = f"{mean(found.values):+.2f} +- {sd(found.values):.2f} over {seeds}"
    claim = f"That {a} scores higher than {b} on {objective} is not established ({seen})"
    if found.more_seeds is not None:
        more = f"about {found.more_seeds} more seeds of {whose}"
        return f"{claim}; {more} would show it, if the difference is real."
    if selected:
        return f"{claim}; seeds were lost, and the remaining ones may be the lucky ones."
    if mean(found.values) > 0:
        return f"{claim}; {rules.max_seeds} seeds of {whose} would probably not show it."
    return f"{claim}."


def _notes(
    pair: tuple[Contender, Contender], titles: tuple[str, str], found: Comparison
) -> Iterator[str]:
    if not found.paired:
        yield "They have too few seeds in common; the seeds of each were matched in their order."
    yield from _unmatched(pair, titles)
    for one, title in zip(pair, titles, strict=True):
        if one.informative_lost:
            count = len(one.lost) + len(one.scores)
            yield f"{title} lost {len(one.lost)} of {count} seeds: {_lost(one)}."
        fresh = [one.scores[seed] for seed in sorted(one.fresh)]
        seen = [value for seed, value in one.scores.items() if seed not in one.fresh]
        if fresh and one.constant_score is None:
            before = f" ({mean(seen):.2f} on the seeds that chose it)" if seen else ""
            text = f"{mean(fresh):.2f} +- {sd(fresh):.2f}" if len(fresh) > 1 else f"{fresh[0]:.2f}"
            yield f"On {len(fresh)} fresh seeds {title} scores {text}{before}: quote this score."


def _unmatched(pair: tuple[Contender, Contender], titles: tuple[str, str]) -> Iterator[str]:
    """The seeds that only one of the two has, and titles whose score ignores the seed."""
    constants = [t for one, t in zip(pair, titles, strict=True) if one.constant_score is not None]
    for title in constants:
        yield f"{title} scores the same with every seed and counts as one number."
    if constants:
        return
    for one, other, title in (*zip(pair, reversed(pair), titles, strict=True),):
        lacking = sorted(other.scores.keys() - one.scores.keys())
        if lacking:
            yield f"{title} lacks seeds that the other has: {','.join(map(str, lacking))}."


def _lost(one: Contender) -> str:
    ends = {"failed": "failed", "pruned": "stopped at a rung"}
    found = {
        text: ",".join(str(seed) for seed in sorted(one.lost) if one.lost[seed] == loss)
        for loss, text in ends.items()
    }
    return "; ".join(f"{seeds} {text}" for text, seeds in found.items() if seeds)


def _over_seeds(name: str, values: Sequence[float]) -> dict[str, Any]:
    return {f"{name}_mean": mean(values), f"{name}_sd": sd(values), f"{name}_n": len(values)}
