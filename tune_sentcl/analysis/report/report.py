"""A report: its sections of tables and figures, independent of the format."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tune_sentcl.analysis.report.figure import Figure
from tune_sentcl.analysis.report.figures import (
    curve_figures,
    front,
    role_figure,
    seed_figure,
    serving_figure,
)
from tune_sentcl.analysis.report.first_screen import FirstScreen
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.questions import question_tables
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.analysis.report.runs import (
    failures,
    measured,
    run_tables,
)
from tune_sentcl.analysis.report.scores import leaderboards, suite_tables
from tune_sentcl.analysis.report.table import Table


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
        sections: The sections in order.
        points: The data that the figures draw.
        answer: The first screen.
        first_figures: Its figure, if figures were asked for.
        folded_figures: The best configurations, which the page folds.
    """

    title: str
    sections: Sequence[Section]
    points: Points
    answer: FirstScreen
    first_figures: Sequence[Figure] = ()
    folded_figures: Sequence[Figure] = ()

    @property
    def tables(self) -> Iterator[Table]:
        """Every table in order."""
        return (p for section in self.sections for p in section.parts if isinstance(p, Table))

    @property
    def figures(self) -> Iterator[Figure]:
        """Every figure in order."""
        first = (*self.first_figures, *self.folded_figures)
        parts = chain(first, *(section.parts for section in self.sections))
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
        ("questions", "Questions", "Questions", question_tables(answer)),
        *(_pictured(points) if figures else ()),
        ("tasks", "Scores by task", "Tasks", suite_tables(subject, most)),
        ("pareto", "Quality against cost", "Quality and cost", pareto),
        ("run", "Studies and their cost", "Run", run_tables(subject)),
        ("failed", "Failures", "Failures", failures(subject, most)),
    ]
    filled = [Section(name, title, short, tuple(parts)) for name, title, short, parts in sections]
    manifests = subject.frames.manifests
    lines = dict.fromkeys(chain(*(each.commands for each in manifests.values())))
    tables = tuple(measured(subject))
    filled.append(Section("measured", "How it was measured", "Protocols", tables, tuple(lines)))
    names = (name.rstrip("/") for name in manifests)
    return Report(
        title=", ".join(name.rpartition("/")[2] or name for name in names),
        sections=tuple(section for section in filled if section.parts or section.lines),
        points=points,
        answer=answer,
        first_figures=_first(subject, answer) if figures else (),
        folded_figures=tuple(seed_figure(subject)) if figures else (),
    )


def _first(subject: ReportData, answer: FirstScreen) -> tuple[Figure, ...]:
    return tuple(serving_figure(subject)) or tuple(role_figure(answer))


def _pictured(points: Points) -> Iterator[tuple[str, str, str, Iterable[Figure]]]:
    # This import is not at the top: it loads Optuna (1 s), which a report without figures does not
    # need.
    from tune_sentcl.analysis.report.knobs import importance_figures, knob_figures

    yield "knobs", "Score against each hyperparameter", "Knobs", knob_figures(points)
    yield "importance", "Which hyperparameters matter", "Importances", importance_figures(points)
    yield "curves", "Learning curves", "Curves", curve_figures(points.subject)
