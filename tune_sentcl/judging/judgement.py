"""Verdicts: whether one configuration of a study scores higher than another."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import ALPHA, Comparison, Verdict
from tune_sentcl.judging.configurations import Configurations, Named
from tune_sentcl.judging.evidence import MOST_SEEDS, Evidence, Source
from tune_sentcl.judging.statistics import POWER, mean
from tune_sentcl.judging.wording import next_step, notes, sentence
from tune_sentcl.objective import Objective
from tune_sentcl.store.study import Study
from tune_sentcl.store.union import TOLERANCE

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
        source: The seeds that count; None if no seed changes either score.
        comparison: The comparison; None if nothing can be claimed.
        sentence: The result in one sentence.
        seeds_needed: The smallest number of fresh seeds of winner, baseline and runner-up that
            decides with probability 0.8. None if the verdict is decided, if it is of other
            configurations, or if 100 seeds do not suffice.
        next_step: The command that runs fresh seeds; empty without one.
        notes: Further remarks.
    """

    asked: OpponentKind
    a: Configuration
    b: Configuration
    objective: str
    data: str
    source: Source | None
    comparison: Comparison | None
    sentence: str
    seeds_needed: int | None
    next_step: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return self.comparison.verdict if self.comparison else "UNDECIDED"

    def row(self) -> dict[str, Any]:
        """The verdict as plain values, with None for what is not finite."""
        row: dict[str, Any] = {"asked": self.asked, "a": self.a.name, "b": self.b.name}
        row |= {name: getattr(self, name) for name in ("objective", "data", "verdict")}
        row |= {"seeds": self.source, "seeds_needed": self.seeds_needed}
        names = ("procedure", "difference", "low", "high", "p", "level", "error", "df", "n")
        row |= {name: getattr(self.comparison, name, None) for name in (*names, "configurations")}
        row |= {"sentence": self.sentence, "next_step": self.next_step, "notes": [*self.notes]}
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }


def judge(
    study: Study,
    *pair: Named,
    baseline: Named | None = None,
    objective: Objective | None = None,
    alpha: float = ALPHA,
    smallest: float = TOLERANCE,
) -> list[Judgement]:
    """Judge which of two configurations of a study scores higher.

    Args:
        study: Running or finished.
        pair: The configuration that is claimed to score higher, and the one that it is compared
            with. Without them the winner is compared with baseline and runner-up, as by
            `judge_winner`.
        baseline: Compare the winner with this configuration alone; only without a pair.
        objective: The score; None: the first that the study's last search maximized.
        alpha: The probability of a false claim among all comparisons.
        smallest: A difference of at most this many points counts as none.

    Raises:
        StudyError: A name does not match exactly one configuration with that score, both names
            match the same one, fewer than two configurations have scores, or the study has no
            baseline.
    """
    configurations = Configurations.read(study, objective)
    evidence = Evidence(configurations, alpha, smallest)
    if pair:
        first, second = map(configurations.named, pair)
        if first is second:
            rule = "a configuration cannot be compared with itself"
            raise configurations.fault(configurations.title(first), rule, "Name another one.")
        return [_judged(evidence, "named", (first, second))]
    if len(configurations.scored()) < 2:
        rule = f"needs two configurations with {configurations.objective}"
        raise configurations.fault("", rule, "Run more of its space.")
    if baseline is not None:
        return judge_winner(evidence, configurations.named(baseline))[:1]
    plain = configurations.baselines()
    if not plain:
        rule = "has no baseline: no method `none`, no lambda 0, no first point of a grid"
        raise configurations.fault("", rule, "Name it: --baseline KNOB=VALUE.")
    return judge_winner(evidence, plain[0])


def judge_winner(evidence: Evidence, baseline: Configuration | None) -> list[Judgement]:
    """Judge the best configuration of a search against the baseline, and the runner-up.

    The winner and the runner-up are the first two of `Configurations.scored`. If the baseline is
    the winner, the runner-up is judged against it.

    Args:
        evidence: Of the configurations; at least two have both scores.
        baseline: One of them; None: judge the winner against the runner-up alone.
    """
    best, second, *_ = evidence.configurations.scored()
    pairs: list[tuple[OpponentKind, Configuration, Configuration]]
    pairs = [("runner-up", best, second)]
    remarks = list(_ranking_notes(evidence.configurations))
    if baseline is best:
        pairs = [("baseline", second, best)]
        remarks.insert(0, "The winner is the baseline; the best other is judged against it.")
    elif baseline is second:
        pairs = [("baseline and runner-up", best, second)]
    elif baseline is not None:
        pairs.insert(0, ("baseline", best, baseline))
    first, *rest = (_judged(evidence, asked, (a, b)) for asked, a, b in pairs)
    return [replace(first, notes=(*remarks, *first.notes)), *rest]


def _ranking_notes(configurations: Configurations) -> Iterator[str]:
    """The first configuration that has a higher mean than the winner, and why it has not won."""
    first, *others = configurations.scored()
    scores = list(first.chosen_scores(1).values())
    for candidate in others:
        own, lost = list(candidate.chosen_scores(1).values()), candidate.chosen_lost(1)
        if mean(own) > mean(scores):
            why = f"has {len(own)} seed{'s'[: len(own) - 1]} and the winner {len(scores)}"
            if lost:
                why = f"lost {len(lost)} of {len(lost) + len(own)} seeds"
            title = configurations.title(candidate)
            yield f"{title} has a higher mean, but {why}: it is not the winner."
            return


def _judged(
    evidence: Evidence, asked: OpponentKind, pair: tuple[Configuration, Configuration]
) -> Judgement:
    configurations = evidence.configurations
    answer = evidence.compare(*pair, named=asked == "named")
    comparison = None if isinstance(answer, str) else answer
    needed, remarks = None, list(notes(evidence, pair))
    undecided = comparison is None or comparison.verdict == "UNDECIDED"
    # The next confirmation compares no others.
    if undecided and {candidate.name for candidate in pair} <= evidence.confirmed.keys():
        effect = evidence.effect(pair, comparison)
        needed = evidence.seeds_needed(effect)
        if needed:
            odds = f"with probability {POWER:g}, if the difference is {effect:.2g} sds of a seed"
            remarks.insert(0, f"{needed} fresh seeds of each decide it {odds}.")
        else:
            text = f"{MOST_SEEDS} fresh seeds of each would probably not decide it."
            remarks.insert(0, text)
    return Judgement(
        asked=asked,
        a=pair[0],
        b=pair[1],
        objective=str(configurations.objective),
        data=configurations.data,
        source=evidence.source(*pair),
        comparison=comparison,
        sentence=sentence(evidence, pair, answer, needed),
        seeds_needed=needed,
        next_step=next_step(configurations.command, needed),
        notes=tuple(remarks),
    )
