"""Test scores by task, as papers print them: one table per suite and protocol."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from tune_sentcl.analysis.report.leaderboard import ON_DATA
from tune_sentcl.analysis.report.marks import LEGEND, caption, marks
from tune_sentcl.analysis.report.subject import Subject, mean_of, title_of
from tune_sentcl.analysis.report.table import Estimate, Table, Value
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
    scores = subject.by_seed
    columns = {title_of(objective): scores[name] for name, objective in subject.own.items()}
    of = "Scores times 100"
    made = _built(subject, columns, most, knobs_first=False, averages="", of=of)
    return replace(made, name="own", title="Own tasks: times 100")


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
        if name in subject.scores and subject.over_seeds[name, "count"].any()
    }
    if not there:
        return
    printed = subject.printed(suite)
    averaged = [name for task, name in there.items() if task in printed]
    scores = subject.by_seed
    columns = {task: scores[name] for task, name in there.items()}
    sentence = ""
    if averaged:
        title = subject.average(averaged)
        items = list(columns.items())
        items.insert(len(averaged), (title, scores[averaged].mean(axis=1, skipna=False)))
        columns = dict(items)
        sentence = f" {mean_of(title, averaged)}"
    few = len(subject.knobs) <= _FEW  # the papers put the knobs first
    of = f"Test scores times 100{ON_DATA[subject.data]}"
    made = _built(subject, columns, most, knobs_first=few, averages=sentence, of=of)
    joined = " Subsets joined (all)." if any(task.startswith("STS1") for task in there) else ""
    order = f" Columns as in {subject.paper}'s tables." if subject.paper else ""
    yield replace(
        made,
        name=f"{suite}-{protocol}",
        title=f"{_TITLES[suite]}: test {shown_metric} times 100, {protocol}",
        note=f"{made.note}{order}{joined}",
    )


def _built(
    subject: Subject,
    columns: Mapping[str, "pd.Series[float]"],
    most: int,
    *,
    knobs_first: bool,
    averages: str,
    of: str,
) -> Table:
    """A table of scores.

    Args:
        subject: The studies.
        columns: The scores by configuration and seed, under their headings.
        most: The number of rows; 0: all.
        knobs_first: Whether the knobs come before the scores.
        averages: Of which tasks an average is, as a sentence.
        of: What the scores are, for the caption.
    """
    part = subject.over_seeds.head(most) if most else subject.over_seeds
    ids = part["configuration", ""].tolist()
    scores = zip(*(_estimates(values, ids) for values in columns.values()), strict=True)
    rows: list[tuple[Value, ...]] = []
    for index, ((_, row), own) in enumerate(zip(part.iterrows(), scores, strict=True), 1):
        knobs = subject.stated(row["configuration", ""])
        seeds = int(row["n", ""])
        rows.append((*knobs, *own, seeds) if knobs_first else (index, *own, seeds, *knobs))
    labels = [subject.labels[key] for key in subject.knobs]
    first = len(labels) if knobs_first else 1
    after = first + len(columns)
    best, near = marks(rows, ids, dict(enumerate(columns.values(), first)), subject.constants)
    scored = (*columns, "seeds")
    return Table(
        name="",
        title="",
        columns=(*labels, *scored) if knobs_first else ("rank", *scored, *labels),
        rows=tuple(rows),
        best=best,
        note=f"Mean ± sd over seeds.{averages} {LEGEND}.",
        more=len(subject.over_seeds) - len(part),
        near=near,
        ids=tuple(map(subject.brief, ids)),
        caption=caption(of, part["n", ""], averages),
        knobs=range(first) if knobs_first else range(after + 1, after + 1 + len(labels)),
        scores=range(first, after),
    )


def _estimates(values: "pd.Series[float]", ids: Sequence[str]) -> list[Estimate]:
    found = values.groupby(level=0).agg(["mean", "std", "count"]).reindex(pd.Index(ids))
    found["count"] = found["count"].fillna(0)
    return [Estimate(mean, sd, int(n)) for mean, sd, n in found.itertuples(index=False)]
