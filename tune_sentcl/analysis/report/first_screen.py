"""The first screen of a report: how much tuning gained, how sure that is, and what to do next."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tune_sentcl.analysis.frames import test_columns
from tune_sentcl.analysis.report.report_data import ReportData, measure_of
from tune_sentcl.config import draws, is_unchanged
from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import Verdict
from tune_sentcl.objective import Objective
from tune_sentcl.results.judgement import Judgement, judge_winner, unequal_precisions
from tune_sentcl.results.standings import Estimate, Standings

UNTRAINED, BASELINE, HAND_SET = "untrained", "baseline", "hand-set"
TUNED, OTHER = "tuned", "best other"
"""The labels of rows: the untrained encoder or another baseline, the best of the grid, and the
winner. If the winner is the first of them, the row `best other` follows.
"""

_FINE = 0.2  # in points; a smaller difference is printed with two digits after the point
_OVER = {
    UNTRAINED: "the untrained encoder",
    BASELINE: "the baseline",
    HAND_SET: "your hand-set hyperparameters",
    OTHER: "the best other configuration",
}
_WORDS: dict[Verdict, str] = {
    "ESTABLISHED": "confirmed",
    "REVERSED": "refuted",
    "NO DIFFERENCE": "negligible",
    "UNDECIDED": "not proven",
}


@dataclass(frozen=True, eq=False)
class FirstScreen:
    """The result of a study in one sentence, with the rows of its figure."""

    subject: ReportData

    @property
    def standings(self) -> Standings:
        """The configurations."""
        return self.subject.standings

    @cached_property
    def judgements(self) -> Sequence[Judgement]:
        """The winner against the baseline, if there is one, and against the runner-up."""
        if len(self.standings.scored()) < 2:
            return ()
        baseline = next(iter(self.standings.baselines()), None)
        evidence = self.standings.evidence()
        return judge_winner(self.standings, evidence, baseline, self.subject.study)

    @cached_property
    def rows(self) -> dict[str, Configuration]:
        """The configurations that the sentence names, by label; empty without a winner."""
        winner, hand_set = self.standings.winner, self.standings.hand_set
        if winner is None:
            return {}
        first = next(iter(self.standings.baselines()), None)
        label = UNTRAINED if first and is_unchanged(first.values) else BASELINE
        if first is winner:
            rows = {label: first, OTHER: next(iter(self.standings.scored()[1:]), None)}
        else:
            rows = {label: None if first is hand_set else first, HAND_SET: hand_set, TUNED: winner}
        return {label: one for label, one in rows.items() if one is not None}

    @cached_property
    def measured(self) -> list[Objective]:
        """The first objective, and its test score if one of the rows has it."""
        objective = self.subject.objectives[0]
        tests = test_columns([objective]).values()
        return [objective, *(one for one in tests if self.standings.by_score(one))]

    def score(self, label: str, objective: Objective, beside: str = "") -> Estimate:
        """A configuration's score over the seeds on which the verdict about it rests.

        Without a verdict these are the confirmation seeds of both configurations, else the search
        seeds.

        Args:
            label: The row.
            objective: The score.
            beside: The row with which the winner is compared; empty: the first row that is not the
                winner.
        """
        one, other, winner = self.rows[label], self.rows[beside or label], self.standings.winner
        if other is winner:
            other = next((each for each in self.rows.values() if each is not winner), one)
        verdict = self.standings.comparisons.get(other.name)
        if str(objective) not in self.standings.scores:
            return Estimate(math.nan, n=0)
        values = self.standings.scores[str(objective)].dropna()
        drawn = [each for each in (one, other, winner) if each and each.constant_score() is None]
        shared = (
            set.intersection(*({*each.confirming_scores()} for each in drawn)) if drawn else set()
        )
        seeds = {*verdict.seeds} if verdict else shared
        if one not in drawn or not seeds:
            seeds = one.search_seeds
        there = (values.get(one.trials[seed]) for seed in sorted(seeds & one.trials.keys()))
        found = [float(value) for value in there if value is not None]
        return Estimate.of(found) if found else Estimate(math.nan, n=0)

    @property
    def sentence(self) -> str:
        """The sentence that says how much the search gained, and how sure the gain is."""
        if self.standings.winner is None:
            return "No trial has finished with a score."
        scored, first = self.standings.scored(), next(iter(self.rows))
        count, measure = len(scored), measure_of(self.subject.objectives[0])
        if not any(draws(one.values) for one in scored):
            best = f"The best of {count:,} untrained encoders" if count > 1 else _OVER[UNTRAINED]
            own = TUNED if TUNED in self.rows else first
            return f"{best[:1].upper()}{best[1:]} has {measure} {self._to(own)}."
        if count == 1:
            return f"The configuration has {measure} {self._to(first)}."
        if OTHER in self.rows:
            chosen = f"The search chose {_OVER[first]}: {measure} {self._to(first)}"
            gained = f"{chosen}, {self._to(OTHER)} for {_OVER[OTHER]}"
        elif first in (UNTRAINED, BASELINE):
            verb = "raised" if self._difference(first) > 0 else "lowered"
            on_dev, *on_test = (self._from_to(first, one) for one in self.measured)
            test = f" (test {on_test[0]})" if on_test else ""
            gained = f"Tuning {verb} {measure} from {on_dev}{test}"
        else:
            gained = f"The best of {count:,} configurations has {measure} {self._to(TUNED)}"
        if HAND_SET in self.rows:
            difference = self._difference(HAND_SET)
            side = "above" if difference > 0 else "below"
            gained += f", {_points(abs(difference))} {side} {_OVER[HAND_SET]}"
        return f"{gained}{self._certainty}."

    @property
    def _certainty(self) -> str:
        """A sentence: which gains are confirmed, and on how many seeds."""
        winner = self.standings.winner
        claims = {label: one for label, one in self.rows.items() if one is not winner}
        if winner is None or not claims:
            return ""
        words, evidence = {}, self.standings.evidence()
        for label, one in claims.items():
            words[label] = "not tested on new seeds"
            if answer := self.standings.comparisons.get(one.name):
                kind = "new seed" if evidence.source(winner, one) == "confirm" else "search seed"
                seeds = f"{answer.n} {kind}{'s' if answer.n > 1 else ''}"
                words[label] = f"{_WORDS[answer.verdict]} on {seeds}"
        if len({*words.values()}) == 1:
            said, several = next(iter(words.values())), len(words) > 1
            if several and said.startswith("not "):
                return f"; neither gain is {said.removeprefix('not ')}"
            what = "the difference is " if OTHER in self.rows else ""
            return f"; {'both gains are ' if several else what}{said}"
        parts = [f"that over {_OVER[label]} is {text}" for label, text in words.items()]
        return f"; {', '.join(parts).replace('that', 'the gain', 1)}"

    def _difference(self, label: str) -> float:
        objective = self.subject.objectives[0]
        mine, other = (self.score(one, objective, label).mean for one in (TUNED, label))
        return mine - other

    def _from_to(self, label: str, objective: Objective) -> str:
        """Two means, with the digits that show their difference."""
        first, last = (self.score(one, objective, label).mean for one in (label, TUNED))
        digits = 1 if abs(last - first) >= _FINE else 2
        return f"{first:.{digits}f} to {last:.{digits}f}"

    def _to(self, label: str) -> str:
        on_dev, *on_test = (_points(self.score(label, one).mean) for one in self.measured)
        return f"{on_dev} (test {on_test[0]})" if on_test else on_dev

    @property
    def winner(self) -> str:
        """The hyperparameters of the best configuration; empty if none has a score."""
        winner = self.standings.winner
        return self.subject.named([winner.name])[0] if winner else ""

    def row(self) -> dict[str, Any]:
        """The winner, its scores, the verdict and the next commands, as values for JSON."""
        winner, judgement = self.standings.winner, next(iter(self.judgements), None)
        label = next((label for label, one in self.rows.items() if one is winner), "")
        scores = {str(one): self.score(label, one) for one in self.measured if label}
        return {
            "winner": winner and winner.name,
            "values": winner and {key: winner.values.get(key) for key in self.standings.differ},
            "scores": {name: asdict(one) for name, one in scores.items()},
            "verdict": judgement and judgement.verdict,
            "sentence": self.sentence,
            "next": [*self.steps],
        }

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the verdicts without repeats; without verdicts, on unequal precisions."""
        found = [note for one in self.judgements for note in one.notes]
        if not self.judgements:
            found = list(unequal_precisions(self.standings, self.standings.scored()))
        return [note[:1].upper() + note[1:] for note in dict.fromkeys(found)]

    @property
    def steps(self) -> Sequence[str]:
        """The commands to run next."""
        found = [one.next_step for one in self.judgements if one.next_step]
        return list(dict.fromkeys(found)) or [*self._last_steps()]

    def _last_steps(self) -> Iterator[str]:
        """The commands to run if `judge` proposes no further seeds."""
        standings, names = self.standings, list(self.subject.frames.manifests)
        winner, first = standings.winner, next(iter(self.judgements), None)
        if len(names) > 1:
            yield from (f"tune-sentcl judge {shlex.quote(name)}" for name in names)
            return
        study = shlex.quote(names[0])
        if first is None:
            is_open = standings.is_incomplete and standings.command
            yield standings.command if is_open else f"tune-sentcl show {study}"
        elif first.verdict == "ESTABLISHED" and first.a is winner:
            kept = self.subject.study.checkpoints() if self.subject.study else set()
            if kept.isdisjoint(first.a.trials.values()):
                yield f"tune-sentcl measure {study} --train"
            yield f"tune-sentcl export {study} --to model"
        else:
            asked = f" --objective {shlex.quote(str(standings.objective))}"
            yield f"tune-sentcl judge {study}{asked if standings.chosen_by else ''}"


def _points(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= _FINE else f"{value:.2f}"
