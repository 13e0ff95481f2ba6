"""The first screen of a report: what tuning gained, whether that is sure, and what to do next."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tune_sentcl.analysis.frames import test_columns
from tune_sentcl.analysis.report.report_data import ReportData, measure_of
from tune_sentcl.analysis.report.runs import as_typed
from tune_sentcl.history import Configuration
from tune_sentcl.judging.comparing import Verdict
from tune_sentcl.objective import Objective
from tune_sentcl.results.judgement import Judgement, judge_winner, unequal_precisions
from tune_sentcl.results.standings import Estimate, Standings

UNTRAINED, HAND_SET, TUNED = "untrained", "hand-set", "tuned"
"""The labelled rows: the encoder before training, the best of the grid, and the winner."""

_FINE = 0.2  # points: smaller differences are printed with two digits
_OVER = {UNTRAINED: "the untrained encoder", HAND_SET: "your hand-set settings"}
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
        """The untrained encoder, the hand-set settings and the winner, as far as there are any."""
        winner, start = self.standings.winner, self.standings.start()
        if winner is None:
            return {}
        if start is winner:
            return {UNTRAINED: winner}
        rows = {UNTRAINED: start, HAND_SET: self.standings.hand_set, TUNED: winner}
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
        winner, objective = self.standings.winner, self.subject.objectives[0]
        if winner is None:
            return "No trial has finished with a score."
        measure, count = measure_of(objective), len(self.standings.tried)
        if UNTRAINED not in self.rows:
            of = f"best of {count:,} configurations" if count > 1 else "configuration"
            gained = f"The {of} has {measure} {self._to(TUNED)}"
        elif TUNED not in self.rows:
            gained = f"No training beats {_OVER[UNTRAINED]}: {measure} {self._to(UNTRAINED)}"
        else:
            difference = self._difference(UNTRAINED)
            verb = "raised" if difference > 0 else "lowered"
            on_dev, *on_test = (
                f"{self._text(UNTRAINED, one)} to {self._text(TUNED, one)}"
                for one in self.measured
            )
            test = f" (test {on_test[0]})" if on_test else ""
            gained = f"Tuning {verb} {measure} from {on_dev}{test}"
        if HAND_SET in self.rows:
            difference = self._difference(HAND_SET)
            side = "above" if difference > 0 else "below"
            gained += f", {_points(abs(difference))} {side} {_OVER[HAND_SET]}"
        return f"{gained}{self._certainty}."

    @property
    def _certainty(self) -> str:
        """Which of the gains are confirmed, and on how many seeds."""
        winner = self.standings.winner
        claims = {label: one for label, one in self.rows.items() if label != TUNED}
        if winner is None or TUNED not in self.rows or not claims:
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
            return f"; {'both gains are ' if several else ''}{said}"
        parts = [f"that over {_OVER[label]} is {text}" for label, text in words.items()]
        return f"; {', '.join(parts).replace('that', 'the gain', 1)}"

    def _difference(self, label: str) -> float:
        objective = self.subject.objectives[0]
        mine, other = (self.score(self.rows[one], objective) for one in (TUNED, label))
        found = mine.mean - other.mean if mine and other else 0.0
        return -found if objective.is_cost else found

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
                if self.judgements and self.judgements[0].verdict == "ESTABLISHED":
                    step = f"tune-sentcl export {study} --to model"
                elif not self.judgements:
                    step = searches[-1] if searches else f"tune-sentcl show {study}"
                found.append(step)
        return list(dict.fromkeys(found))


def _points(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= _FINE else f"{value:.2f}"
