"""The queries of a retrieval task whose scores tuning raised and lowered most."""

from collections.abc import Iterator, Sequence

import numpy as np

from tune_sentcl.analysis.report.first_screen import TUNED, UNTRAINED, FirstScreen
from tune_sentcl.analysis.report.report_data import title_of
from tune_sentcl.analysis.report.table import Row, Table
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.errors import TuneSentclError
from tune_sentcl.history import Configuration
from tune_sentcl.items import FILE, ItemScores, read_items

_SHOWN = 10


def question_tables(screen: FirstScreen) -> Iterator[Table]:
    """The ten queries that gained most and the ten that lost most, each group as a table.

    Scores of single queries are stored for the untrained encoder and for trials with kept weights.
    """
    objective = screen.subject.objectives[0]
    if objective.protocol != "retrieval" or not {UNTRAINED, TUNED} <= screen.rows.keys():
        return
    before, after = (_items(screen, screen.rows[label]) for label in (UNTRAINED, TUNED))
    if before is None or after is None or len(before.values) != len(after.values):
        return
    gains = 100 * (after.values - before.values)
    order = np.argsort(-gains, kind="stable")
    texts = _texts(screen, len(gains))
    for name, places in (("gained", order), ("lost", order[::-1])):
        sign = 1 if name == "gained" else -1
        rows: list[Row] = [
            (texts[at], *(float(round(100 * one.values[at], 1)) for one in (before, after)))
            for at in places[:_SHOWN].tolist()
            if sign * gains[at] > 0
        ]
        if rows:
            yield Table(
                name=f"questions-{name}",
                title=f"Queries that {name} most",
                columns=("question", UNTRAINED, TUNED),
                rows=tuple(rows),
                note=f"{title_of(objective)} of single queries, times 100.",
            )


def _items(screen: FirstScreen, one: Configuration) -> ItemScores | None:
    """The item scores of a configuration, from its first seed that has them."""
    study, objective = screen.subject.study, screen.subject.objectives[0]
    finished = [seed for seed, result in one.results.items() if result.status == "finished"]
    for seed in sorted(finished) if study else ():
        content = study.items_file(one.trials[seed], FILE) if study else None
        items = read_items(content or b"", objective.task, objective.split, objective.metric)
        if items is not None:
            return items
    return None


def _texts(screen: FirstScreen, count: int) -> Sequence[str]:
    """The queries as texts, or as numbers if the study's data cannot be read."""
    objective, winner = screen.subject.objectives[0], screen.rows[TUNED]
    sources = own_sources(winner.values["evaluation.own"] or ())
    try:
        tasks = [
            task
            for source in sources
            if source.name == objective.task
            for task in read_own(source)
            if isinstance(task, RetrievalTask) and task.split == objective.split
        ]
    except (TuneSentclError, OSError):
        tasks = []
    for task in tasks:
        if len(task.queries) == count:
            return task.queries
    return [f"question {number}" for number in range(1, count + 1)]
