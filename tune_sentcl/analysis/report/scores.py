"""Tables of scores over seeds: the leaderboard, and test scores by task as papers print them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tune_sentcl.analysis.frames import statistics_of, test_columns
from tune_sentcl.analysis.report.report_data import (
    GPU_HOURS,
    HOURS,
    ReportData,
    mean_of,
    title_of,
)
from tune_sentcl.analysis.report.table import Hours, Table, Value
from tune_sentcl.objective import OFFERS, Objective

LEGEND = "Bold: the winner; grey: proven worse than the winner"
_ON_DATA = {"toy": " on the generated toy sets", "root": " on the real sets"}
# The page holds this many more rows, and shows those whose configurations the reader selects.
_SPARE = 1000
_SUITES = {
    "sts": ("Semantic textual similarity", "spearman", "Spearman"),
    "transfer": ("Transfer", "accuracy", "accuracy"),
}

_Columns = Mapping[str, Mapping[Any, Value]]
"""By heading, the cells of a column; by configuration, each cell."""


def on_data(objective: Objective, data: str) -> str:
    """Whether a score is on the toy or the real sets, in words; empty for a custom task."""
    return "" if objective.is_own else _ON_DATA[data]


def leaderboards(subject: ReportData, most: int) -> Iterator[Table]:
    """The leaderboard, if a trial has finished; at most `most` rows, 0: all."""
    if not subject.shown:
        return
    first, *others = ((subject.title(one), subject.over_seeds(one)) for one in subject.targets)
    lost = {one.name: len(one.chosen_lost()) for one in subject.shown}
    columns = {
        **_ranks(subject),
        **dict([first]),
        **_knobs(subject),
        "seeds": subject.seeds,
        **_confirmed(subject),
        **dict(others),
        **({"lost": lost} if any(lost.values()) else {}),
        subject.cost_title: {
            name: Hours(one.mean) for name, one in subject.over_seeds(subject.cost).items()
        },
        "configuration": {name: subject.brief(name) for name in subject.seeds},
    }
    averages = subject.averaged(subject.targets)
    of = f"Scores times 100{on_data(subject.objectives[0], subject.standings.data)}"
    empty = Table("leaderboard", "Leaderboard", note=_note(subject, averages), caption=of)
    yield _filled(subject, empty, columns, most, averages)


def _confirmed(subject: ReportData) -> _Columns:
    """The first objective on confirmation seeds, and its test score on both kinds of seeds."""
    objective, standings = subject.objectives[0], subject.standings
    confirmed = standings.by_score(objective, confirming=True)
    found = {f"{title_of(objective)}, confirmation seeds": confirmed}
    for test in test_columns([objective]).values():
        found[title_of(test)] = standings.by_score(test)
        found[f"{title_of(test)}, confirmation seeds"] = standings.by_score(test, confirming=True)
    columns: dict[str, Mapping[Any, Value]] = {t: scores for t, scores in found.items() if scores}
    if any(title.endswith("confirmation seeds") for title in columns):
        counts = {one.name: len(one.confirming) or None for one in subject.shown}
        columns["confirmation seeds"] = counts
    return columns


def _note(subject: ReportData, averages: str) -> str:
    seeds, ranks = subject.seeds, subject.standings.ranks
    title = subject.title(str(subject.objectives[0]))
    ranked = (
        f"Configurations are in the order of {title}. Scores are times 100: mean ± standard "
        "deviation over seeds."
    )
    if subject.costs_in_use:
        ranked += " Costs are in their own units; lower is better."
    if len(ranks) < len(seeds):
        ranked += (
            " Configurations that lost a seed, or have fewer seeds than the best, have no rank."
        )
    if any(one.confirming for one in subject.shown):
        ranked += " Confirmation seeds did not choose the winner: report their means."
    if older := len(subject.standings.older):
        ranked += f" Configurations of older plugin code are left out: {older}."
    ranked += f" Times exclude start-up.{averages} {LEGEND}."
    if subject.standings.chosen_by:
        ranked += f" {subject.standings.chosen_by}"
    if {*seeds.values()} == {1}:
        return f"{ranked} Each configuration has one seed, so small differences may be luck."
    return ranked


def suite_tables(subject: ReportData, most: int) -> Iterator[Table]:
    """One table per measured suite and protocol, with the tasks in the paper's order."""
    if not subject.shown:
        return
    for suite in _SUITES:
        tasks = subject.tasks(suite)
        for protocol in dict.fromkeys(name for task in tasks for name in OFFERS[task]):
            yield from _suite(subject, suite, protocol, most)
    if subject.own:
        # The table has no average, because custom tasks have different metrics.
        columns = {title_of(one): subject.over_seeds(name) for name, one in subject.own.items()}
        empty = Table("own", "Custom tasks: times 100", caption="Scores times 100")
        yield _by_task(subject, empty, columns, most)


def _suite(subject: ReportData, suite: str, protocol: str, most: int) -> Iterator[Table]:
    title, metric, shown_metric = _SUITES[suite]
    printed = subject.printed(suite)
    offered = [task for task in subject.tasks(suite) if protocol in OFFERS[task]]
    names = {task: str(Objective(task, metric, "test", protocol)) for task in offered}
    scored = {t: subject.over_seeds(n) for t, n in names.items() if n in subject.scores}
    columns = [(task, found) for task, found in scored.items() if found]
    if not columns:
        return
    averaged, averages = [names[task] for task, _ in columns if task in printed], ""
    if averaged:
        average, trials = subject.average(averaged), subject.trials.set_index("trial_id")
        values = trials[averaged].mean(axis=1, skipna=False).to_dict()
        columns.insert(len(averaged), (average, subject.standings.over_seeds(values)))
        averages = f" {mean_of(average, averaged)}"
    empty = Table(
        f"{suite}-{protocol}",
        f"{title}: test {shown_metric} times 100, {protocol}",
        caption=f"Test scores times 100{_ON_DATA[subject.standings.data]}",
    )
    table = _by_task(subject, empty, dict(columns), most, averages)
    order = f" The columns are those of {subject.paper}'s tables." if subject.paper else ""
    joined = (
        " The pairs of all subsets are joined (all)."
        if any(task.startswith("STS1") for task, _ in columns)
        else ""
    )
    yield replace(table, note=f"{table.note}{order}{joined}")


def _by_task(
    subject: ReportData, empty: Table, scores: _Columns, most: int, averages: str = ""
) -> Table:
    columns = {**_ranks(subject), **scores, "seeds": subject.seeds, **_knobs(subject)}
    empty = replace(empty, note=f"Mean ± standard deviation over seeds.{averages} {LEGEND}.")
    return _filled(subject, empty, columns, most, averages)


def _ranks(subject: ReportData) -> _Columns:
    ranks = subject.standings.ranks
    return {"rank": {name: ranks.get(name) for name in subject.seeds}}


def _knobs(subject: ReportData) -> _Columns:
    rows = {name: subject.stated(name) for name in subject.seeds}
    return {
        subject.labels[key]: {name: row[at] for name, row in rows.items()}
        for at, key in enumerate(subject.knobs)
    }


def _filled(
    subject: ReportData, empty: Table, columns: _Columns, most: int, averages: str
) -> Table:
    spare = _SPARE if empty.name == "leaderboard" else 0
    shown = [*subject.seeds][: max(most, spare) if most else None]
    rows = [tuple(cells.get(name) for cells in columns.values()) for name in shown]
    count, labels = most or len(rows), {*subject.labels.values()}
    counts = [subject.seeds[name] for name in shown]
    least, largest = min(counts), max(counts)
    seeds = f"{least} to {largest}" if least != largest else f"{largest}"
    over = (
        f"{empty.caption}: mean ± standard deviation over {seeds} "
        f"{'seed' if largest == 1 else 'seeds'}"
    )
    tasks = averages.strip().rstrip(".").replace(". ", "; ")
    return replace(
        empty,
        columns=tuple(columns),
        knobs=tuple(x for x, title in enumerate(columns) if title in labels),
        rows=tuple(rows[:count]),
        spare=tuple(rows[count:]),
        more=max(0, len(subject.seeds) - count),
        ids=tuple(map(subject.brief, shown)),
        marks=tuple(map(subject.standings.mark, shown)),
        caption=f"{over} ({tasks})." if tasks else f"{over}.",
    )


def leaderboard_frame(subject: ReportData) -> pd.DataFrame:
    """Every configuration with unrounded values.

    Columns: `rank`, `configuration`, `verdict` of `judge` on the comparison with the winner, the
    varied hyperparameters, `data`, `seeds`, and `..._mean`, `..._sd` and `..._n` of each score (by
    its name on the command line), of the averages, and of `hours` and `gpu_hours` per trial.
    `lost` counts lost seeds, if any. `confirm_...` describe each objective and its test score on
    confirmation seeds, if any; the columns of the first objective leave out its name.
    """
    names, standings = [*subject.seeds], subject.standings
    ranks = [standings.ranks.get(name) for name in names]
    columns: dict[str, Any] = {"rank": pd.array(ranks, "Int64"), "configuration": names}
    columns["verdict"] = list(map(standings.said, names))
    for key in subject.knobs:
        values = [standings.tried[name].values.get(key) for name in names]
        columns[key] = pd.Series(values, dtype=object)
    columns |= {"data": standings.data, "seeds": [*subject.seeds.values()]}
    for number in dict.fromkeys((*subject.targets, *subject.scores, HOURS, GPU_HOURS)):
        title = number.replace(" ", "_").lower() if ":" not in number else number
        columns |= statistics_of(title, subject.over_seeds(number), names)
    over_seeds = subject.frames.configurations(subject.objectives).set_index("configuration")
    found = over_seeds.reindex(names).filter(regex="^(lost$|confirm_)")
    return pd.concat([pd.DataFrame(columns), found.reset_index(drop=True)], axis=1)
