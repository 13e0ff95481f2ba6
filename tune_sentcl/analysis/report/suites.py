"""Test scores by task, as papers print them: one table per suite and protocol."""

from collections.abc import Iterator, Sequence

import pandas as pd

from tune_sentcl.analysis.report.leaderboard import plain
from tune_sentcl.analysis.report.subject import Subject, title_of
from tune_sentcl.analysis.report.table import Estimate, Table, Value, best_of
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.objective import OFFERS, Objective

_METRICS = {"sts": ("spearman", "Spearman"), "transfer": ("accuracy", "accuracy")}
_FEW = 4
_TITLES = {"sts": "Semantic textual similarity", "transfer": "Transfer"}


def suite_tables(subject: Subject, most: int) -> Iterator[Table]:
    """One table per measured suite and protocol, with the paper's order of columns."""
    for suite in _METRICS:
        tasks = subject.tasks(suite)
        for protocol in dict.fromkeys(name for task in tasks for name in OFFERS[task]):
            yield from _table(subject, suite, protocol, most)
    if subject.own:
        yield _own_table(subject, most)


def _own_table(subject: Subject, most: int) -> Table:
    """Every score of the user's own tasks, without an average, because their metrics differ."""
    part = subject.shown.head(most) if most else subject.shown
    labels = [subject.labels[key] for key in subject.knobs]
    rows: list[tuple[Value, ...]] = []
    for index, (_, row) in enumerate(part.iterrows(), 1):
        scores = [subject.estimate(row, name) for name in subject.own]
        knobs = [plain(row[key, ""]) for key in subject.knobs]
        rows.append((index, *scores, int(row["n", ""]), *knobs))
    tops = [float(subject.shown[name, "mean"].max()) for name in subject.own]
    return Table(
        name="own",
        title="Own tasks: times 100",
        columns=("rank", *map(title_of, subject.own.values()), "seeds", *labels),
        rows=tuple(rows),
        best=best_of(rows, dict(enumerate(tops, 1))),
        note="Mean ± sd over seeds; the best of each column in bold.",
        more=len(subject.shown) - len(part),
    )


def _table(subject: Subject, suite: str, protocol: str, most: int) -> Iterator[Table]:
    metric, shown_metric = _METRICS[suite]
    names = {
        task: str(Objective(task, metric, "test", protocol))
        for task in subject.tasks(suite)
        if protocol in OFFERS[task]
    }
    there = {
        task: name
        for task, name in names.items()
        if name in subject.scores and subject.shown[name, "count"].any()
    }
    if not there:
        return
    printed = [task for task in subject.printed(suite) if task in names]
    averaged = [task for task in there if task in printed]
    part = subject.shown.head(most) if most else subject.shown
    averages = _averages(subject, [there[task] for task in averaged])
    few = len(subject.knobs) <= _FEW  # the papers put the knobs first
    rows: list[tuple[Value, ...]] = []
    for index, (_, row) in enumerate(part.iterrows(), 1):
        knobs = [plain(row[key, ""]) for key in subject.knobs]
        scores = {task: subject.estimate(row, name) for task, name in there.items()}
        average = averages[averages.index == row["configuration", ""]].tolist()
        ordered: list[Value] = [scores.pop(task) for task in averaged]
        ordered += [Estimate(mean(average), sd(average), len(average)), *scores.values()]
        seeds = int(row["n", ""])
        rows.append((*knobs, *ordered, seeds) if few else (index, *ordered, seeds, *knobs))
    labels = [subject.labels[key] for key in subject.knobs]
    others = [task for task in there if task not in averaged]
    tops = [float(subject.shown[there[task], "mean"].max()) for task in (*averaged, *others)]
    tops.insert(len(averaged), float(averages.groupby(level=0).mean().max()))
    name = "Avg." if len(averaged) == len(printed) else f"Avg. of {len(averaged)}"
    scored = (*averaged, name, *others, "seeds")
    first = len(labels) if few else 1
    yield Table(
        name=f"{suite}-{protocol}",
        title=f"{_TITLES[suite]}: test {shown_metric} times 100, {protocol}",
        columns=(*labels, *scored) if few else ("rank", *scored, *labels),
        rows=tuple(rows),
        best=best_of(rows, dict(enumerate(tops, first))),
        note=_note(subject, list(there)),
        more=len(subject.shown) - len(part),
    )


def _averages(subject: Subject, columns: Sequence[str]) -> "pd.Series[float]":
    """The average over tasks of each finished trial with scores of all, by configuration."""
    finished = subject.searched[subject.searched["data"] == subject.data]
    found = finished[list(columns)].mean(axis=1, skipna=False)
    return found.set_axis(pd.Index(finished["configuration"])).dropna()


def _note(subject: Subject, tasks: Sequence[str]) -> str:
    order = f"columns and average as in {subject.paper}'s tables; " if subject.paper else ""
    joined = "subsets joined (all); " if any(task.startswith("STS1") for task in tasks) else ""
    return f"Mean ± sd over seeds; {order}{joined}the best of each column in bold."
