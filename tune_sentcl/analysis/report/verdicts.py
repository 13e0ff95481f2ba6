"""The answer of a report: who won, whether that may be claimed, and what to do next."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from tune_sentcl.analysis.report.figure import (
    LINES,
    Figure,
    fading,
    in_lines,
    layer,
    layered,
    nominal,
    quantitative,
    tooltips,
)
from tune_sentcl.analysis.report.scores import indistinguishable, on_data
from tune_sentcl.analysis.report.subject import Subject, title_of
from tune_sentcl.analysis.report.table import Estimate, Table, Value, written
from tune_sentcl.config import UNTRAINED, draws, is_start
from tune_sentcl.errors import ObjectiveError
from tune_sentcl.history import Configuration
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.evidence import Evidence
from tune_sentcl.judging.judgement import Judgement, judge_winner
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.judging.wording import unequal_precisions
from tune_sentcl.objective import Objective

_DRAWN = 10
_FRESH, _CHOSEN = "fresh seeds", "seeds of the search"
_LINE = 34  # characters of a line of a label
_GROUPS = ("best", "not proven worse", "worse")


@dataclass(frozen=True, eq=False)
class Answer:
    """The first screen of a report.

    Attributes:
        subject: The studies.
    """

    subject: Subject

    @cached_property
    def configurations(self) -> Configurations:
        """The configurations by the score that the searches maximized."""
        manifests = self.subject.frames.manifests
        objectives = (_chosen_by(self.subject), self.subject.objectives[0])
        snapshot = self.subject.frames.snapshot
        found = Configurations.of(snapshot, objectives, ", ".join(manifests))
        # The seeds of several studies were planned apart.
        return found.planned_by(*manifests.values()) if len(manifests) == 1 else found

    @cached_property
    def ranked(self) -> Sequence[Configuration]:
        """The configurations with a score, the best first."""
        return self.configurations.scored()

    @cached_property
    def judgements(self) -> Sequence[Judgement]:
        """The winner against the baseline, if there is one, and against the runner-up."""
        if len(self.ranked) < 2:
            return ()
        baseline = next(iter(self.configurations.baselines()), None)
        return judge_winner(Evidence(self.configurations), baseline)

    @property
    def question(self) -> str:
        """The question that the studies answer."""
        title, judged = title_of(_chosen_by(self.subject)), title_of(self.subject.objectives[0])
        also = "" if title == judged else f" What is its {judged}?"
        on = on_data(_chosen_by(self.subject), self.configurations.data)
        count = len(self.configurations.tried)
        return f"Which of {count:,} configurations has the highest {title}{on}?{also}"

    @cached_property
    def winner(self) -> str:
        """The knobs of the best configuration; empty if none has a score."""
        names = [one.name for one in self.ranked[:1]]
        return "".join(self.subject.named(names) if names else ())

    @property
    def scores(self) -> Iterator[tuple[str, Estimate, str]]:
        """The scores of the untrained encoder and of the winner: a name, the score, its seeds.

        Seeds that no choice saw come before those that chose the winner.
        """
        if not self.ranked:
            return
        one = self.ranked[0]
        if not draws(one.values):
            yield UNTRAINED, Estimate(mean([*one.scores().values()])), ""
            return
        start = next((other for other in self.ranked if is_start(other.values, one.values)), None)
        if start is not None:
            yield UNTRAINED, Estimate(mean([*start.scores().values()])), ""
        for found, words in (
            (one.fresh_scores(), "fresh {} (quote this)"),
            (one.chosen_scores(), "{} that chose it"),
        ):
            if own := list(found.values()):
                seeds = f"{len(own)} {words.format('seed' if len(own) == 1 else 'seeds')}"
                yield "tuned", Estimate(mean(own), sd(own), len(own)), f"on {seeds}"

    @property
    def lead(self) -> str:
        """The result in one sentence."""
        found = [" ".join((name, written(score), on)).strip() for name, score, on in self.scores]
        if not found:
            return "No trial has finished with a score."
        title = title_of(self.subject.objectives[0])
        who = f" ({self.winner})" if self.winner else ""
        return f"Best of {len(self.configurations.tried):,}: {title} {'; '.join(found)}{who}."

    def brief(self, text: str) -> str:
        """A sentence in which the winner has no knobs, because they stand above it."""
        name = self.configurations.title(self.ranked[0])
        found = text.replace(name, "the winner")
        return found[:1].upper() + found[1:]

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the verdicts, each once; without a verdict on seeds of unequal precision."""
        if not self.judgements:
            found = list(unequal_precisions(self.configurations, self.ranked))
        else:
            found = [note for one in self.judgements for note in one.notes]
        return [note[:1].upper() + note[1:] for note in dict.fromkeys(found)]

    @property
    def steps(self) -> Sequence[str]:
        """The commands to run next."""
        asked = [one.next_step for one in self.judgements]
        found = [step for step in dict.fromkeys(asked) if step]
        won = asked and self.judgements[0].verdict == "ESTABLISHED"
        for name, manifest in [] if found else list(self.subject.frames.manifests.items())[:1]:
            study, space = shlex.quote(name), shlex.quote(manifest.space)
            more = f"judge {study}" if asked else f"search {space} --study {study}"
            found.append(f"tune-sentcl {f'export {study} --to model' if won else more}")
        return found

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The best configurations with the score of each seed."""
        drawn = self.ranked[:_DRAWN]
        return (_figure(self.subject, drawn),) if drawn else ()

    @property
    def table(self) -> Iterator[Table]:
        """The judgements with their numbers."""
        found = self.judgements
        if not found:
            return
        target, chosen = self.subject.objectives[0], _chosen_by(self.subject)
        by = f"on {title_of(target)}"
        if chosen != target:
            by += f", the winner by {title_of(chosen)}"
        yield Table(
            name="verdicts",
            title="Verdicts",
            columns=("A", "B", "verdict", "A - B", "low", "high", "seeds", "p", "procedure"),
            rows=tuple(_row(self.configurations, one) for one in found),
            note=f"Verdicts of tune-sentcl judge {by}. Low to high: interval that holds "
            "for all comparisons together; p: corrected for them.",
        )


def _chosen_by(subject: Subject) -> Objective:
    """The first score that the searches maximized; by default a winner is not chosen on test."""
    try:
        return subject.frames.objectives()[0]
    except ObjectiveError:  # different scores
        return subject.objectives[0]


def _row(configurations: Configurations, one: Judgement) -> tuple[Value, ...]:
    row = one.row()
    found = (math.nan if row[key] is None else row[key] for key in ("difference", "low", "high"))
    return (
        *(configurations.title(one.a), configurations.title(one.b)),
        one.verdict,
        *map(Estimate, found),
        row["n"],
        None if row["p"] is None else float(f"{row['p']:.2g}"),
        row["procedure"],
    )


def _figure(subject: Subject, drawn: Sequence[Configuration]) -> Figure:
    best, labels = drawn[0], subject.named([one.name for one in drawn])
    places = [in_lines(f"{rank}: {label}", _LINE) for rank, label in enumerate(labels, 1)]
    scores = {one.name: one.scores() for one in drawn}
    equal = indistinguishable(scores, best.name, subject.constants)
    groups = [_GROUPS[0], *(_GROUPS[1 if one.name in equal else 2] for one in drawn[1:])]
    frame = pd.DataFrame(
        [
            {
                **{"id": subject.brief(one.name), "name": place, "group": group},
                **{"seed": seed, "score": value},
                "kind": _FRESH if seed in one.fresh else _CHOSEN,
            }
            for one, place, group in zip(drawn, places, groups, strict=True)
            for seed, value in one.scores().items()
        ]
    )
    title = title_of(subject.objectives[0])
    legend = {"orient": "bottom", "columns": 1, "title": None}
    colours = {"domain": _GROUPS, "range": ["@accent", "@ink", "@pale"]}
    shapes = {"domain": [_CHOSEN, _FRESH], "range": ["circle", "diamond"]}
    axis = {**LINES, "labelLimit": 240, "ticks": False, "domain": False}
    scale = {"zero": False, "nice": False, "padding": 8}
    at = {
        "x": quantitative("score", title, scale=scale),
        "y": nominal("name", "", sort=places, axis=axis),
        "color": nominal("group", "", scale=colours, legend=legend),
    }
    point = {
        **{**at, **fading(0.9)},
        "shape": nominal("kind", "", scale=shapes, legend={**legend, "orient": "top"}),
        "tooltip": tooltips(
            {"name": "configuration", "score": title, "seed": "seed", "kind": "kind"}
        ),
    }
    means = {**at, "x": {**at["x"], "aggregate": "mean"}}
    height = len(drawn) * max(24, *(10 + 14 * len(place.splitlines()) for place in places))
    return Figure(
        name="seeds",
        title="The best configurations, seed by seed",
        caption=f"The best {len(drawn)} by rank; bar: mean of all its seeds."
        + " Fresh seeds took no part in any choice." * bool((frame["kind"] == _FRESH).any()),
        spec=layered(
            layer("point", point, "seeds", size=50, strokeWidth=1.5),
            layer("tick", means, "seeds", thickness=3, height=16),
            height=height,
        ),
        data={"seeds": frame.round(4)},
        height=90 + height,
    )
