"""Verdicts: whether one configuration of a study scores higher than another, in words."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tune_sentcl.config import knobs, short_name, stated, value_text
from tune_sentcl.history import Configuration
from tune_sentcl.items import FILE, read_items, score_interval
from tune_sentcl.judging.comparing import ALPHA, Comparison, Verdict
from tune_sentcl.judging.evidence import OPEN, UNFINISHED, Evidence, Source
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.objective import Objective
from tune_sentcl.results.confirming import Proposal, Question, proposed
from tune_sentcl.results.standings import Standings
from tune_sentcl.store.study import Study
from tune_sentcl.store.union import TOLERANCE

Named = str | Mapping[str, Any]
"""A configuration: its id, a trial's id, a prefix of either, its method, or keys with values."""

OpponentKind = Literal["named", "baseline", "runner-up", "baseline and runner-up"]
Pair = tuple[Configuration, Configuration]

_SHOWN = 4  # the largest number of configurations that a message lists
_LEAST_P = 1e-4
_ENDS = {"failed": "failed", "pruned": "stopped at the end of a stage"}


@dataclass(frozen=True)
class Judgement:
    """One verdict: whether configuration A scores higher than B.

    Attributes:
        asked: Why B was chosen as the opponent.
        a: The configuration that is claimed to score higher.
        b: The configuration with which A is compared.
        objective: The score.
        data: The evaluation data: `toy` or `root`.
        source: The seeds that count; None if no seed changes either score.
        comparison: The comparison; None if nothing can be claimed.
        sentence: The result in one sentence.
        seeds_needed: The number of seeds of the proposed or unfinished confirmation, including
            those of earlier confirmations. None if the verdict is decided, if a confirmation would
            not compare A and B, or if 100 seeds would probably decide nothing.
        chance: The probability with which these seeds decide; None without them.
        next_step: The command that runs confirmation seeds; empty without one.
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
    chance: float | None
    next_step: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return self.comparison.verdict if self.comparison else "UNDECIDED"

    def row(self) -> dict[str, Any]:
        """The verdict as values for JSON, with None for numbers that are not finite."""
        row: dict[str, Any] = {"asked": self.asked, "a": self.a.name, "b": self.b.name}
        row |= {name: getattr(self, name) for name in ("objective", "data", "verdict")}
        row |= {"seeds": self.source, "seeds_needed": self.seeds_needed, "chance": self.chance}
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
        study: A running or finished study.
        pair: The configuration that is claimed to score higher, and the configuration with which
            it is compared. Without a pair, `judge_winner` compares the winner with baseline and
            runner-up.
        baseline: Compare the winner with this configuration alone; only without a pair.
        objective: The score; None: the first that the study's last search maximized.
        alpha: The probability of a false claim among all comparisons.
        smallest: A difference of at most this many points counts as no difference.

    Raises:
        StudyError: A name does not match exactly one configuration with that score, both names
            match the same configuration, fewer than two configurations have scores, or the study
            has no baseline.
    """
    standings = Standings.read(study, objective)
    evidence = standings.evidence(alpha, smallest)
    if pair:
        first, second = (_named(standings, name) for name in pair)
        if first is second:
            rule = "a configuration cannot be compared with itself"
            raise standings.fault(
                standings.title(first), rule, "Name two different configurations."
            )
        return _judged(standings, evidence, [("named", (first, second))])
    standings.require_two()
    if baseline is not None:
        return judge_winner(standings, evidence, _named(standings, baseline), study)[:1]
    plain = standings.baselines()
    if not plain:
        rule = "has no baseline, such as method `none`, lambda 0 or the first point of a grid"
        raise standings.fault("", rule, "Name a baseline by --baseline KNOB=VALUE.")
    return judge_winner(standings, evidence, plain[0], study)


def _named(standings: Standings, name: Named) -> Configuration:
    """Find the one configuration that a name or some hyperparameters match.

    Raises:
        StudyError: No or several configurations match, or the match does not have the score.
    """
    if isinstance(name, str):
        # The name is an id, or a method such as `untrained`.
        asked = name
        fits = _by_id(standings, name) or _by_knobs(standings, {"method.name": name})
    else:
        fits = _by_knobs(standings, name)
        asked = ",".join(f"{key}={value_text(value)}" for key, value in name.items())
    if len(fits) != 1:
        candidates = fits or list(standings.tried.values())
        shown = "; ".join(map(standings.title, candidates[:_SHOWN]))
        more = f" and {len(candidates) - _SHOWN} more" if len(candidates) > _SHOWN else ""
        rule = f"fits {'several configurations' if fits else 'no configuration'}"
        move = (
            f"Name one of these: {shown}{more}."
            if candidates
            else ("Run the study's search first.")
        )
        raise standings.fault(asked, rule, move)
    if not fits[0].scores():
        rule = f"has no finished trial with {standings.objective}"
        move = "Run its trials, or choose another --objective."
        raise standings.fault(standings.title(fits[0]), rule, move)
    return fits[0]


def _by_id(standings: Standings, name: str) -> list[Configuration]:
    if name in standings.tried:
        return [standings.tried[name]]
    return [
        each
        for each in standings.tried.values()
        if name and any(id_.startswith(name) for id_ in (each.name, *each.trials.values()))
    ]


def _by_knobs(standings: Standings, asked: Mapping[str, Any]) -> list[Configuration]:
    """The configurations with these values, else those whose titles print the same values."""
    wanted = {_knob(standings, given, value): value for given, value in asked.items()}
    texts = {key: value_text(value) for key, value in wanted.items()}
    tried = list(standings.tried.values())
    exact = [candidate for candidate in tried if wanted.items() <= candidate.values.items()]
    return exact or [
        candidate
        for candidate in tried
        if texts == {key: value_text(stated(key, candidate.values)) for key in texts}
    ]


def _knob(standings: Standings, given: str, value: Any) -> str:
    keys = [key for key in knobs() if given in (key, short_name(key))]
    if len(keys) != 1:
        rule = f"may be {' or '.join(keys)}" if keys else "is no hyperparameter"
        raise standings.fault(
            f"{given}={value_text(value)}", rule, "Write KEY=VALUE as for --set."
        )
    return keys[0]


def judge_winner(
    standings: Standings,
    evidence: Evidence,
    baseline: Configuration | None,
    study: Study | None,
) -> list[Judgement]:
    """Judge the best configuration of a search against the baseline, and the runner-up.

    The winner and the runner-up are the first two of `Standings.scored`. If the baseline is the
    winner, the runner-up is judged against it.

    Args:
        standings: The standings; at least two configurations have both scores.
        evidence: The evidence of the standings.
        baseline: The baseline; None: judge the winner against the runner-up alone.
        study: The study from which to read how far other test items could move the winner's score;
            None: no remark on that (several studies).
    """
    best, second, *_ = standings.scored()
    remarks = [*filter(None, [standings.chosen_by]), *_ranking_notes(standings)]
    questions: list[tuple[OpponentKind, Pair]] = [("runner-up", (best, second))]
    if baseline is best:
        remarks.insert(
            0,
            "The winner is the baseline, so the best of the other configurations is judged "
            "against the baseline.",
        )
        questions = [("baseline", (second, best))]
    elif baseline is second:
        questions = [("baseline and runner-up", (best, second))]
    elif baseline is not None:
        questions.insert(0, ("baseline", (best, baseline)))
    items = [] if study is None else list(_items_note(study, best, standings.objective))
    first, *others = _judged(standings, evidence, questions)
    return [replace(first, notes=(*remarks, *first.notes, *items)), *others]


def _items_note(study: Study, winner: Configuration, objective: Objective) -> Iterator[str]:
    if objective.protocol not in ("cosine", "retrieval"):
        return
    title = f"the winner's score on {objective}"
    scores = sorted((-score, winner.trials[seed]) for seed, score in winner.scores().items())
    kept = study.checkpoints()
    # `export` chooses a trial in the same order.
    for trial_id in (name for _, name in scores if name in kept):
        content = study.items_file(trial_id, FILE) or b""
        items = read_items(content, objective.task, objective.split, objective.metric)
        if items is not None:
            found = score_interval(items)
            yield (
                f"With other test items, {title} ({found.value:.2f} in trial {trial_id[:8]}) "
                f"would probably lie between {found.low:.2f} and {found.high:.2f} (95 % "
                f"bootstrap interval over {len(items.values):,} items)."
            )
            return
    yield f"The study keeps no scores of single items for {title}."


@dataclass(frozen=True)
class _Outlook:
    """The prospects of an undecided question; the fields are those of `Judgement`."""

    seeds_needed: int | None = None
    chance: float | None = None
    note: str = ""
    goes_on: bool = False


def _judged(
    standings: Standings, evidence: Evidence, questions: Sequence[tuple[OpponentKind, Pair]]
) -> list[Judgement]:
    """The verdicts on some pairs, with one proposal for all undecided pairs."""
    answers = {
        question: evidence.compare(*question[1], named=question[0] == "named")
        for question in questions
    }
    # The next confirmation compares only configurations that may still win, so other pairs get no
    # outlook.
    contenders = standings.contenders().keys()
    undecided = [
        (asked, pair)
        for (asked, pair), answer in answers.items()
        if {each.name for each in pair} <= contenders
        and (isinstance(answer, str) or answer.verdict == "UNDECIDED")
    ]
    outlooks: dict[tuple[OpponentKind, Pair], _Outlook] = {}
    if any(answers[one] == OPEN for one in undecided):
        note = "The search has not ended: repeat its command."
        outlooks = dict.fromkeys(undecided, _Outlook(note=note, goes_on=True))
    elif standings.plan and any(answers[one] == UNFINISHED for one in undecided):
        seeds = len(standings.plan.confirmations[-1].seeds)
        note = (
            f"The last confirmation has not ended: repeat the search with --confirm {seeds} to "
            "continue."
        )
        outlooks = dict.fromkeys(undecided, _Outlook(seeds, None, note))
    elif undecided:
        open_ = [Question(one[1], _comparison(answers[one])) for one in undecided]
        proposal = proposed(standings, evidence, open_)
        for question, chance in zip(undecided, proposal.chances, strict=True):
            note = _prospect(question[0], proposal, *chance)
            seeds_needed = proposal.seeds if proposal.is_worthwhile else None
            outlooks[question] = _Outlook(seeds_needed, chance[0], note)
    return [
        _judgement(standings, evidence, question, answer, outlooks.get(question, _Outlook()))
        for question, answer in answers.items()
    ]


def _comparison(answer: Comparison | str) -> Comparison | None:
    return None if isinstance(answer, str) else answer


def _prospect(asked: OpponentKind, proposal: Proposal, chance: float, effect: float) -> str:
    about = "This pair" if asked == "named" else f"Winner and {asked}"
    if asked == "baseline and runner-up":
        about = "Winner and baseline"
    seen = f"if the two differ by {effect:.2g} standard deviations over seeds"
    decides = (
        f"{about}: {seen}, a search with --confirm {proposal.seeds} settles the comparison with "
        f"probability {chance:.2g}"
    )
    return f"{decides}." if proposal.is_worthwhile else f"{decides}. More seeds hardly help."


def _judgement(
    standings: Standings,
    evidence: Evidence,
    question: tuple[OpponentKind, Pair],
    answer: Comparison | str,
    outlook: _Outlook,
) -> Judgement:
    asked, pair = question
    notes = [outlook.note] if outlook.note else []
    return Judgement(
        asked=asked,
        a=pair[0],
        b=pair[1],
        objective=str(standings.objective),
        data=standings.data,
        source=evidence.source(*pair),
        comparison=_comparison(answer),
        sentence=_sentence(standings, evidence, pair, answer, outlook.seeds_needed),
        seeds_needed=outlook.seeds_needed,
        chance=outlook.chance,
        next_step=standings.command
        if outlook.goes_on
        else _next_step(standings.command, outlook.seeds_needed),
        notes=(*notes, *_notes(standings, pair)),
    )


def _sentence(
    standings: Standings,
    evidence: Evidence,
    pair: Pair,
    answer: Comparison | str,
    needed: int | None,
) -> str:
    """State the result and its procedure in one sentence, as a paper would."""
    a, b = map(standings.title, pair)
    objective, source = standings.objective, evidence.source(*pair)
    undecided = f"Whether {a} scores higher than {b} on {objective} is undecided"
    if isinstance(answer, str):
        option = f": --confirm {needed}" if needed else ""
        needs_new = source == "planned" and standings.plan is not None and answer != OPEN
        rule = f"; only confirmation seeds can support a claim{option}" * needs_new
        return f"{undecided}: {answer}{rule}."
    basis = _basis(answer, source)
    if answer.verdict == "UNDECIDED":
        return f"{undecided} (difference {answer.difference:+.2f}, {basis})."
    if answer.verdict == "NO DIFFERENCE":
        most = f"{evidence.smallest:g} points"
        return f"{a} and {b} differ by {most} at most on {objective} ({basis})."
    higher, lower = (a, b) if answer.difference > 0 else (b, a)
    points = f"{_points(abs(answer.difference))} points"
    return f"{higher} scores {points} higher than {lower} on {objective} ({basis})."


def _basis(comparison: Comparison, source: Source | None) -> str:
    """The interval of the difference (higher minus lower), p-value and procedure, as text."""
    if comparison.procedure == "exact":
        return "no seed changes either score"
    sign = -1 if comparison.verdict == "REVERSED" else 1
    low, high = sorted((sign * comparison.low, sign * comparison.high))
    count = f"{comparison.configurations} configurations"
    procedure = {
        "Dunnett": f"Dunnett's test, {count}",
        "Tukey": f"Tukey's test, all pairs of {count}",
        "Bonferroni t": f"t-test, Bonferroni over {count}",
    }[comparison.procedure]
    kind = "confirmation seeds" if source == "confirm" else "seeds"
    p = f"p = {comparison.p:.2g}" if comparison.p >= _LEAST_P else f"p < {_LEAST_P:g}"
    return (
        f"{100 * comparison.level:.4g}% interval {_points(low)} to {_points(high)}, {p}; "
        f"{procedure}, {comparison.n} {kind} as blocks"
    )


def _points(value: float) -> str:
    """A number of points as text; a small number gets digits until it does not print as 0."""
    return f"{value:.2f}" if abs(value) >= 0.01 or not value else f"{value:.1g}"


def _next_step(command: str, needed: int | None) -> str:
    if not needed:
        return ""
    if not command:
        return f"tune-sentcl search ... --confirm {needed}"
    return f"{re.sub(r' --confirm[ =]+[0-9]+', '', command)} --confirm {needed}"


def _ranking_notes(standings: Standings) -> Iterator[str]:
    """Name the first configuration with a higher mean than the winner, and why it has not won."""
    first, *others = standings.scored()
    scores = list(first.chosen_scores(1).values())
    for candidate in others:
        own, lost = list(candidate.chosen_scores(1).values()), candidate.chosen_lost(1)
        if mean(own) > mean(scores):
            why = f"has {len(own)} seed{'s'[: len(own) - 1]}, the winner {len(scores)}"
            if lost:
                why = f"lost {len(lost)} of {len(lost) + len(own)} seeds"
            title = standings.title(candidate)
            yield f"{title} has a higher mean than the winner, but {why}."
            return


def _notes(standings: Standings, pair: Sequence[Configuration]) -> Iterator[str]:
    for candidate in pair:
        title, scores = standings.title(candidate), candidate.scores()
        if lost := candidate.lost():
            ends = {end: sorted(s for s, why in lost.items() if why == end) for end in _ENDS}
            text = "; ".join(
                f"seed{'s' * (len(seeds) > 1)} {_listed(seeds)} {_ENDS[end]}"
                for end, seeds in ends.items()
                if seeds
            )
            few = f"{len(lost)} of {len({*lost, *scores})} seeds"
            yield f"{title} lost {few}: {text}."
        if fallen := standings.collapsed.get(candidate.name):
            count = f"{len(fallen)} of {len(scores)} seeds {'score' if fallen[1:] else 'scores'}"
            seeds = ", ".join(f"seed {seed}: {scores[seed]:.2f}" for seed in fallen)
            yield f"{title}: {count} far below the others ({seeds})."
        if candidate.constant_score() is not None:
            yield f"{title} scores the same with every seed, so one seed is enough."
        elif confirmed := list(candidate.confirming_scores().values()):
            spread = f" +- {sd(confirmed):.2f}" if len(confirmed) > 1 else ""
            value = f"{mean(confirmed):.2f}{spread}"
            seeds = f"{len(confirmed)} confirmation seeds"
            yield f"{title} scores {value} on {seeds}: report this mean."
    yield from unequal_precisions(standings, pair)


def unequal_precisions(standings: Standings, compared: Sequence[Configuration]) -> Iterator[str]:
    """A remark on configurations whose seeds were trained in different precisions."""
    every, texts = set[str](), []
    for candidate in compared:
        used: dict[str, list[int]] = {}
        for seed in sorted(candidate.scores()):
            if (precision := candidate.results[seed].precision) is not None:
                used.setdefault(precision, []).append(seed)
        every |= used.keys()
        own = ", ".join(f"{name} (seeds {_listed(seeds)})" for name, seeds in used.items())
        texts.append(f"{standings.title(candidate)}: {own}")
    if len(every) > 1:
        rule = "Not all seeds were trained in the same precision, which may explain the difference"
        yield f"{rule}. {'; '.join(texts)}."


def _listed(seeds: Sequence[int]) -> str:
    return ",".join(map(str, seeds))
