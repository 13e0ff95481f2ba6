"""A report: sections of tables and figures, before any format."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tune_sentcl.analysis.report.curves import curve_figures
from tune_sentcl.analysis.report.figure import Figure
from tune_sentcl.analysis.report.front import front
from tune_sentcl.analysis.report.knobs import knob_figures
from tune_sentcl.analysis.report.leaderboard import leaderboards
from tune_sentcl.analysis.report.parallel import parallel_figure
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.runs import (
    commands,
    elapsed_hours,
    parts,
    plan,
    protocols,
    runs,
    versions,
)
from tune_sentcl.analysis.report.stopped import failures, stages
from tune_sentcl.analysis.report.subject import GPU_HOURS, HOURS, Subject
from tune_sentcl.analysis.report.suites import suite_tables
from tune_sentcl.analysis.report.table import Table, duration
from tune_sentcl.analysis.report.verdicts import Answer

Part = Table | Figure


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
    parts: tuple[Part, ...]
    lines: tuple[str, ...] = ()


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
    key_figures: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]
    points: Points
    answer: Answer
    first_figures: tuple[Figure, ...] = ()

    @property
    def tables(self) -> Iterator[Table]:
        """Every table in order."""
        return (p for section in self.sections for p in section.parts if isinstance(p, Table))

    @property
    def figures(self) -> Iterator[Figure]:
        """Every figure in order."""
        parts = (part for section in self.sections for part in section.parts)
        return (p for p in (*self.first_figures, *parts) if isinstance(p, Figure))


def report_of(subject: Subject, most: int = 50, *, figures: bool = True) -> Report:
    """Build a report.

    Args:
        subject: The studies.
        most: Rows of each long table; 0: all.
        figures: Whether to build figures, which take most of the time.
    """
    points, answer = Points(subject), Answer(subject)
    sections = [
        _section("best", "Leaderboard", "Leaderboard", leaderboards(subject, most)),
        _section("judged", "Verdicts", "Verdicts", answer.table),
        *(_pictured(points) if figures else ()),
        _section("tasks", "Scores by task", "Tasks", suite_tables(subject, most)),
        _section("pareto", "Quality against cost", "Quality and cost", front(points, most)),
        _section("run", "Runs and their cost", "Run", _ran(subject)),
        _section("failed", "Failures", "Failures", failures(subject, most)),
        _section(
            "measured", "How it was measured", "Protocols", _measured(subject), _lines(subject)
        ),
    ]
    if not figures:
        sections = [
            replace(one, parts=tuple(part for part in one.parts if isinstance(part, Table)))
            for one in sections
        ]
    return Report(
        title=", ".join(
            name.rstrip("/").rpartition("/")[2] or name for name in subject.frames.manifests
        ),
        key_figures=tuple(_key_figures(subject)),
        sections=tuple(section for section in sections if section.parts or section.lines),
        points=points,
        answer=answer,
        first_figures=answer.figures if figures else (),
    )


def _pictured(points: Points) -> Iterator[Section]:
    # Imports Optuna (1 s), which reports without figures do not need.
    from tune_sentcl.analysis.report.importances import importance_figures

    yield _section("knobs", "Score against each knob", "Knobs", knob_figures(points))
    yield _section("together", "Knobs together", "Together", parallel_figure(points))
    yield _section("importance", "Which knobs matter", "Importances", importance_figures(points))
    yield _section("curves", "Learning curves", "Curves", curve_figures(points.subject))


def _ran(subject: Subject) -> Iterator[Part]:
    yield runs(subject)
    spent = parts(subject)
    if spent is not None:
        yield spent
    # Figures first: the page sets them side by side.
    others = [*plan(subject), *stages(subject)]
    yield from (part for part in others if isinstance(part, Figure))
    yield from (part for part in others if isinstance(part, Table))


def _measured(subject: Subject) -> Iterator[Part]:
    found = protocols(subject)
    if found is not None:
        yield found
    yield versions(subject)


def _lines(subject: Subject) -> tuple[str, ...]:
    return tuple(dict.fromkeys(command for _, command in commands(subject)))


def _section(
    name: str, title: str, short: str, parts: Iterable[Part], lines: tuple[str, ...] = ()
) -> Section:
    return Section(name, title, short, tuple(parts), lines)


def _key_figures(subject: Subject) -> Iterator[tuple[str, str, str]]:
    trials = subject.trials
    status = trials["status"].value_counts()
    words = ", ".join(f"{count:,} {kind}" for kind, count in status.items())
    yield "trials", f"{len(trials):,}", words
    seeds = trials["seed"].nunique()
    yield (
        "configurations",
        f"{trials['configuration'].nunique():,}",
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}",
    )
    gpu = float(np.nansum(trials[GPU_HOURS]))
    hours = float(np.nansum(trials[HOURS]))
    if gpu:
        yield "GPU time", duration(gpu), "shares of GPUs count as such"
    yield "trial time", duration(hours), "sum over parallel trials"
    elapsed = elapsed_hours(trials)
    if elapsed == elapsed:
        yield "elapsed", duration(elapsed), "first start to last end"
    failed = int(status.get("failed", 0))
    yield "failed", f"{failed:,}", f"{100 * failed / max(1, len(trials)):.1f} % of trials"
