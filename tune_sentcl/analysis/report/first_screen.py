"""The first screen of a report: what tuning gained, whether that is sure, and what to do next."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tune_sentcl.analysis.frames import test_columns
from tune_sentcl.analysis.report.report_data import ReportData, measure_of
from tune_sentcl.analysis.report.runs import as_typed
from tune_sentcl.config import draws
from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import Verdict
from tune_sentcl.objective import Objective
from tune_sentcl.results.judgement import Judgement, judge_winner, unequal_precisions
from tune_sentcl.results.standings import Estimate, Standings

UNTRAINED, BASELINE, HAND_SET = "untrained", "baseline", "hand-set"
TUNED, OTHER = "tuned", "best other"
"""The labelled rows: the encoder before training or another baseline, the best of the grid and
the winner. If the first of them has won, the best other one stands below it."""

_FINE = 0.2  # points: smaller differences are printed with two digits
_OVER = {
    UNTRAINED: "the untrained encoder",
    BASELINE: "the baseline",
    HAND_SET: "your hand-set settings",
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
    """The result of a study in one sentence, with the rows of its picture."""

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
        """The configurations that the sentence names, as far as there are any."""
        winner, hand_set = self.standings.winner, self.standings.hand_set
        if winner is None:
            return {}
        label, first = UNTRAINED, self.standings.start()
        if first is None:
            label, first = BASELINE, next(iter(self.standings.baselines()), None)
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

    def score(self, one: Configuration, objective: Objective) -> Estimate | None:
        """A score of a row: over new seeds if it has any, else over those of the search."""
        found = (self.standings.by_score(objective, fresh=fresh) for fresh in (True, False))
        return next((known[one.name] for known in found if one.name in known), None)

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
            on_dev, *on_test = (
                f"{self._text(first, one)} to {self._text(TUNED, one)}" for one in self.measured
            )
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
        """Which of the gains are confirmed, and on how many seeds."""
        winner = self.standings.winner
        claims = {label: one for label, one in self.rows.items() if one is not winner}
        if winner is None or not claims:
            return ""
        words, evidence = {}, self.standings.evidence()
        for label, one in claims.items():
            words[label] = "not tested on new seeds"
            if answer := self.standings.comparisons.get(one.name):
                kind = "new seed" if evidence.source(winner, one) == "fresh" else "seed"
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
        mine, other = (self.score(self.rows[one], objective) for one in (TUNED, label))
        return mine.mean - other.mean if mine and other else 0.0

    def _text(self, label: str, objective: Objective) -> str:
        score = self.score(self.rows[label], objective)
        return _points(score.mean) if score else "?"

    def _to(self, label: str) -> str:
        on_dev, *on_test = (self._text(label, one) for one in self.measured)
        return f"{on_dev} (test {on_test[0]})" if on_test else on_dev

    @property
    def winner(self) -> str:
        """The knobs of the best configuration; empty if none has a score."""
        winner = self.standings.winner
        return self.subject.named([winner.name])[0] if winner else ""

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the verdicts, each once; without a verdict on seeds of unequal precision."""
        found = [note for one in self.judgements for note in one.notes]
        if not self.judgements:
            found = list(unequal_precisions(self.standings, self.standings.scored()))
        return [note[:1].upper() + note[1:] for note in dict.fromkeys(found)]

    @property
    def steps(self) -> Sequence[str]:
        """The commands to run next."""
        found = [one.next_step for one in self.judgements if one.next_step]
        if not found:
            for name, manifest in list(self.subject.frames.manifests.items())[:1]:
                study = shlex.quote(name)
                searches = [one for one in map(as_typed, manifest.commands) if " search " in one]
                step = f"tune-sentcl judge {study}"
                if self.standings.chosen_by:
                    step = f"{step} --objective {shlex.quote(str(self.subject.objectives[0]))}"
                first = next(iter(self.judgements), None)
                if first and first.verdict == "ESTABLISHED" and first.a is self.standings.winner:
                    step = f"tune-sentcl export {study} --to model"
                elif first is None:
                    is_open = self.standings.is_incomplete and searches
                    step = searches[-1] if is_open else f"tune-sentcl show {study}"
                found.append(step)
        return list(dict.fromkeys(found))


def _points(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= _FINE else f"{value:.2f}"
