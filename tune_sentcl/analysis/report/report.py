"""A report: its first screen, and sections of tables and figures, before any format."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from tune_sentcl.analysis.report.figure import Figure
from tune_sentcl.analysis.report.figures import curve_figures, front, seed_figure
from tune_sentcl.analysis.report.knobs import knob_figures, parallel_figure
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.report_data import GPU_HOURS, HOURS, ReportData, title_of
from tune_sentcl.analysis.report.runs import (
    commands,
    elapsed_hours,
    failures,
    measured,
    run_tables,
)
from tune_sentcl.analysis.report.scores import leaderboards, on_data, suite_tables
from tune_sentcl.analysis.report.table import Estimate, Table, Value, duration, written
from tune_sentcl.config import UNTRAINED, draws, is_start
from tune_sentcl.errors import ObjectiveError
from tune_sentcl.history import Configuration
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.evidence import Evidence
from tune_sentcl.judging.judgement import (
    Judgement,
    judge_winner,
    unequal_precisions,
)
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.objective import Objective


@dataclass(frozen=True, eq=False)
class FirstScreen:
    """The first screen of a report: who won, whether that may be claimed, and what to do next."""

    subject: ReportData

    @cached_property
    def chosen_by(self) -> Objective:
        """The first score that the searches maximized; a winner is not chosen on test."""
        try:
            return self.subject.frames.objectives()[0]
        except ObjectiveError:  # different scores
            return self.subject.objectives[0]

    @cached_property
    def configurations(self) -> Configurations:
        """The configurations by the score that the searches maximized."""
        frames = self.subject.frames
        objectives = (self.chosen_by, self.subject.objectives[0])
        found = Configurations.of(frames.snapshot, objectives, ", ".join(frames.manifests))
        # The seeds of several studies were planned apart.
        plans = [*frames.manifests.values()] if len(frames.manifests) == 1 else []
        return found.planned_by(*plans) if plans else found

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
        return judge_winner(Evidence(self.configurations), baseline, self.subject.study)

    @property
    def question(self) -> str:
        """The question that the studies answer."""
        title, judged = title_of(self.chosen_by), title_of(self.subject.objectives[0])
        also = "" if title == judged else f" What is its {judged}?"
        on = on_data(self.chosen_by, self.configurations.data)
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
        for best in self.ranked[:1]:
            starts = (one for one in self.ranked if is_start(one.values, best.values))
            start = next(starts, None) if draws(best.values) else best
            if start is not None:
                yield UNTRAINED, Estimate(mean([*start.scores().values()])), ""
            for found, words in (
                (best.fresh_scores(), "fresh {} (report this)"),
                (best.chosen_scores(), "{} that chose it"),
            ):
                if start is not best and (own := list(found.values())):
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
        found = text.replace(self.configurations.title(self.ranked[0]), "the winner")
        return found[:1].upper() + found[1:]

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the verdicts, each once; without a verdict on seeds of unequal precision."""
        found = [note for one in self.judgements for note in one.notes]
        if not self.judgements:
            found = list(unequal_precisions(self.configurations, self.ranked))
        return [note[:1].upper() + note[1:] for note in dict.fromkeys(found)]

    @property
    def steps(self) -> Sequence[str]:
        """The commands to run next."""
        found = [one.next_step for one in self.judgements if one.next_step]
        for name, manifest in [] if found else list(self.subject.frames.manifests.items())[:1]:
            study, space = shlex.quote(name), shlex.quote(manifest.space)
            step = f"judge {study}" if self.judgements else f"search {space} --study {study}"
            if self.judgements and self.judgements[0].verdict == "ESTABLISHED":
                step = f"export {study} --to model"
            found.append(f"tune-sentcl {step}")
        return list(dict.fromkeys(found))

    @property
    def table(self) -> Iterator[Table]:
        """The judgements with their numbers."""
        if not self.judgements:
            return
        target, by = self.subject.objectives[0], ""
        if self.chosen_by != target:
            by = f", the winner by {title_of(self.chosen_by)}"
        yield Table(
            name="verdicts",
            title="Verdicts",
            columns=("A", "B", "verdict", "A - B", "low", "high", "seeds", "p", "procedure"),
            rows=tuple(map(self._row, self.judgements)),
            note=f"Verdicts of tune-sentcl judge on {title_of(target)}{by}. Low to high: interval "
            "that holds for all comparisons together; p: corrected for them.",
        )

    def _row(self, one: Judgement) -> tuple[Value, ...]:
        row = one.row()
        ends = (math.nan if row[k] is None else row[k] for k in ("difference", "low", "high"))
        p = None if row["p"] is None else float(f"{row['p']:.2g}")
        names = map(self.configurations.title, (one.a, one.b))
        return (*names, one.verdict, *map(Estimate, ends), row["n"], p, row["procedure"])


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report under one heading.

    Attributes:
        name: Its anchor.
        title: The heading.
        short: A shorter heading for the navigation.
        parts: Tables and figures in order.
        lines: Command lines.
    """

    name: str
    title: str
    short: str
    parts: Sequence[Table | Figure]
    lines: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """The content of a report.

    Attributes:
        title: The studies' names.
        key_figures: Key figures: name, value and a remark.
        sections: The sections in order.
        points: The data that the figures draw.
        answer: The first screen.
        first_figures: Its figure, if figures were asked for.
    """

    title: str
    key_figures: Sequence[tuple[str, str, str]]
    sections: Sequence[Section]
    points: Points
    answer: FirstScreen
    first_figures: Sequence[Figure] = ()

    @property
    def tables(self) -> Iterator[Table]:
        """Every table in order."""
        return (p for section in self.sections for p in section.parts if isinstance(p, Table))

    @property
    def figures(self) -> Iterator[Figure]:
        """Every figure in order."""
        parts = chain(self.first_figures, *(section.parts for section in self.sections))
        return (part for part in parts if isinstance(part, Figure))


def report_of(subject: ReportData, most: int = 50, *, figures: bool = True) -> Report:
    """Build a report.

    Args:
        subject: The studies.
        most: Rows of each long table; 0: all.
        figures: Whether to build figures, which take most of the time.
    """
    points, answer = Points(subject), FirstScreen(subject)
    pareto = (part for part in front(points, most) if figures or isinstance(part, Table))
    sections: list[tuple[str, str, str, Iterable[Table | Figure]]] = [
        ("best", "Leaderboard", "Leaderboard", leaderboards(subject, most)),
        ("judged", "Verdicts", "Verdicts", answer.table),
        *(_pictured(points) if figures else ()),
        ("tasks", "Scores by task", "Tasks", suite_tables(subject, most)),
        ("pareto", "Quality against cost", "Quality and cost", pareto),
        ("run", "Runs and their cost", "Run", run_tables(subject)),
        ("failed", "Failures", "Failures", failures(subject, most)),
    ]
    filled = [Section(name, title, short, tuple(parts)) for name, title, short, parts in sections]
    lines = tuple(dict.fromkeys(commands(subject)))
    tables = tuple(measured(subject))
    filled.append(Section("measured", "How it was measured", "Protocols", tables, lines))
    names = (name.rstrip("/") for name in subject.frames.manifests)
    return Report(
        title=", ".join(name.rpartition("/")[2] or name for name in names),
        key_figures=tuple(_key_figures(subject)),
        sections=tuple(section for section in filled if section.parts or section.lines),
        points=points,
        answer=answer,
        first_figures=tuple(seed_figure(subject, answer.ranked)) if figures else (),
    )


def _pictured(points: Points) -> Iterator[tuple[str, str, str, Iterable[Figure]]]:
    # Imports Optuna (1 s), which reports without figures do not need.
    from tune_sentcl.analysis.report.importances import importance_figures

    yield "knobs", "Score against each knob", "Knobs", knob_figures(points)
    yield "together", "Knobs together", "Together", parallel_figure(points)
    yield "importance", "Which knobs matter", "Importances", importance_figures(points)
    yield "curves", "Learning curves", "Curves", curve_figures(points.subject)


def _key_figures(subject: ReportData) -> Iterator[tuple[str, str, str]]:
    trials = subject.trials
    status = trials["status"].value_counts()
    words = ", ".join(f"{count:,} {kind}" for kind, count in status.items())
    yield "trials", f"{len(trials):,}", words
    seeds = trials["seed"].nunique()
    configurations = f"{trials['configuration'].nunique():,}"
    yield "configurations", configurations, f"{seeds} {'seed' if seeds == 1 else 'seeds'}"
    if gpu := float(np.nansum(trials[GPU_HOURS])):
        yield "GPU time", duration(gpu), "shares of GPUs count as such"
    yield "trial time", duration(float(np.nansum(trials[HOURS]))), "sum over parallel trials"
    elapsed = elapsed_hours(trials)
    if elapsed == elapsed:
        yield "elapsed", duration(elapsed), "first start to last end"
    failed = int(status.get("failed", 0))
    yield "failed", f"{failed:,}", f"{100 * failed / max(1, len(trials)):.1f} % of trials"
