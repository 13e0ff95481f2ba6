"""Tables of scores over seeds: the leaderboard, and test scores by task as papers print them."""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tune_sentcl.analysis.report.report_data import (
    GPU_HOURS,
    HOURS,
    ReportData,
    estimates,
    mean_of,
    title_of,
)
from tune_sentcl.analysis.report.table import Estimate, Hours, Table, Value
from tune_sentcl.judging.comparing import Family, collapsed_seeds
from tune_sentcl.judging.statistics import mean
from tune_sentcl.objective import OFFERS, Objective
from tune_sentcl.store.union import TOLERANCE

LEGEND = "Bold: the best of a column; underlined: not distinguishable from it"
_ON_DATA = {"toy": " on the generated toy sets", "root": " on the real sets"}
_SPARE = 1000  # rows that the page shows when the reader selects them
_FEW = 4  # knobs that papers put first
_SUITES = {
    "sts": ("Semantic textual similarity", "spearman", "Spearman"),
    "transfer": ("Transfer", "accuracy", "accuracy"),
}

_Columns = dict[str, Mapping[Any, Value]]
"""By heading, the cell of each configuration."""


def on_data(objective: Objective, data: str) -> str:
    """Which of SentEval's sets a score is on; empty for a user's own task."""
    return "" if objective.is_own else _ON_DATA[data]


def leaderboards(subject: ReportData, most: int) -> Iterator[Table]:
    """The leaderboard, if a trial has finished; at most `most` rows, 0: all."""
    order = subject.over_seeds
    if order.empty:
        return
    first, *others = (
        (
            subject.title(one),
            marked(subject.by_seed[one], subject.constants, is_cost=one in subject.costs_in_use),
        )
        for one in subject.targets
    )
    fresh = [("fresh seeds", subject.fresh)] if subject.fresh else []
    lost = order["lost", ""].to_dict()
    columns = {
        **_ranks(subject),
        **dict([first, *fresh, *others]),
        **_seeds(subject),
        **({"lost": lost} if any(lost.values()) else {}),
        **_knobs(subject),
        subject.cost_title: {
            name: Hours(one) for name, one in order[subject.cost, "mean"].items()
        },
        "configuration": {name: subject.brief(name) for name in order.index},
    }
    averages = subject.averaged(subject.targets)
    of = f"Scores times 100{on_data(subject.objectives[0], subject.data)}"
    empty = Table("leaderboard", "Leaderboard", note=_note(subject, averages), caption=of)
    yield _filled(subject, empty, columns, most, averages)


def _note(subject: ReportData, averages: str) -> str:
    seeds, lost = subject.over_seeds["n", ""], subject.over_seeds["lost", ""]
    title = subject.title(str(subject.objectives[0]))
    ranked = f"Ranked by {title}; times 100, mean ± sd over seeds."
    if subject.costs_in_use:
        ranked += " Costs are in their units; less is better."
    if seeds.nunique() > 1:
        ranked += " Those with the most seeds come first, or without noise of seeds."
    if subject.fresh:
        ranked += " Fresh seeds: the same score on seeds that the search did not use."
    if lost.any():
        ranked += " Configurations that lost a seed, failed or stopped, come last."
    single = int((seeds == 1).sum())
    ranked += f" Time: without start-up.{averages} {LEGEND}."
    if single == len(seeds):
        return f"{ranked} Each configuration has one seed: small differences may be luck."
    return f"{ranked} {single} of {len(seeds)} have one seed." if single else ranked


def suite_tables(subject: ReportData, most: int) -> Iterator[Table]:
    """One table per measured suite and protocol, with the paper's order of columns."""
    for suite in _SUITES:
        tasks = subject.tasks(suite)
        for protocol in dict.fromkeys(name for task in tasks for name in OFFERS[task]):
            yield from _suite(subject, suite, protocol, most)
    if subject.own:
        # Without an average, because the metrics of the user's own tasks differ.
        columns = {title_of(one): subject.by_seed[name] for name, one in subject.own.items()}
        empty = Table("own", "Own tasks: times 100", caption="Scores times 100")
        yield _by_task(subject, empty, columns, most, "", knobs_first=False)


def _suite(subject: ReportData, suite: str, protocol: str, most: int) -> Iterator[Table]:
    title, metric, shown_metric = _SUITES[suite]
    scores, printed = subject.by_seed, subject.printed(suite)
    offered = [task for task in subject.tasks(suite) if protocol in OFFERS[task]]
    names = {task: str(Objective(task, metric, "test", protocol)) for task in offered}
    there = {t: n for t, n in names.items() if n in scores and scores[n].notna().any()}
    if not there:
        return
    averaged = [name for task, name in there.items() if task in printed]
    columns, averages = [(task, scores[name]) for task, name in there.items()], ""
    if averaged:
        average = subject.average(averaged)
        columns.insert(len(averaged), (average, scores[averaged].mean(axis=1, skipna=False)))
        averages = f" {mean_of(average, averaged)}"
    empty = Table(
        f"{suite}-{protocol}",
        f"{title}: test {shown_metric} times 100, {protocol}",
        caption=f"Test scores times 100{_ON_DATA[subject.data]}",
    )
    few = len(subject.knobs) <= _FEW
    table = _by_task(subject, empty, dict(columns), most, averages, knobs_first=few)
    order = f" Columns as in {subject.paper}'s tables." if subject.paper else ""
    joined = " Subsets joined (all)." if any(task.startswith("STS1") for task in there) else ""
    yield replace(table, note=f"{table.note}{order}{joined}")


def _by_task(
    subject: ReportData,
    empty: Table,
    columns: Mapping[str, "pd.Series[float]"],
    most: int,
    averages: str,
    *,
    knobs_first: bool,
) -> Table:
    """A table of scores by configuration and seed."""
    marks = {title: marked(values, subject.constants) for title, values in columns.items()}
    scores, knobs = {**marks, **_seeds(subject)}, _knobs(subject)
    ordered = knobs | scores if knobs_first else _ranks(subject) | scores | knobs
    empty = replace(empty, note=f"Mean ± sd over seeds.{averages} {LEGEND}.")
    return _filled(subject, empty, ordered, most, averages)


def _ranks(subject: ReportData) -> _Columns:
    return {"rank": {name: rank for rank, name in enumerate(subject.over_seeds.index, 1)}}


def _seeds(subject: ReportData) -> _Columns:
    return {"seeds": subject.over_seeds["n", ""].to_dict()}


def _knobs(subject: ReportData) -> _Columns:
    rows = {name: subject.stated(name) for name in subject.over_seeds.index}
    return {
        subject.labels[key]: {name: row[at] for name, row in rows.items()}
        for at, key in enumerate(subject.knobs)
    }


def _filled(
    subject: ReportData, empty: Table, columns: _Columns, most: int, averages: str
) -> Table:
    """A table with its columns, and with the first sentence of its caption."""
    order = subject.over_seeds
    spare = _SPARE if empty.name == "leaderboard" else 0
    shown = order.head(max(most, spare)) if most else order
    rows = [tuple(cells.get(name) for cells in columns.values()) for name in shown.index]
    count, labels = most or len(rows), {*subject.labels.values()}
    least, largest = int(shown["n", ""].min()), int(shown["n", ""].max())
    seeds = f"{least} to {largest}" if least != largest else f"{largest}"
    over = f"{empty.caption}: mean ± sd over {seeds} {'seed' if largest == 1 else 'seeds'}"
    tasks = averages.strip().rstrip(".").replace(". ", "; ")
    return replace(
        empty,
        columns=tuple(columns),
        knobs=tuple(x for x, title in enumerate(columns) if title in labels),
        rows=tuple(rows[:count]),
        spare=tuple(rows[count:]),
        more=max(0, len(order) - count),
        ids=tuple(map(subject.brief, shown.index)),
        caption=f"{over} ({tasks})." if tasks else f"{over}.",
    )


def marked(
    values: "pd.Series[float]", constants: Container[str], *, is_cost: bool = False
) -> dict[str, Estimate]:
    """A column of scores, with a mark at the best and at those not distinguishable from it.

    Args:
        values: By configuration and seed.
        constants: The configurations whose scores do not depend on the seed; one seed is enough.
        is_cost: Whether the least is the best.
    """
    if is_cost:
        negated = marked(-values, constants)
        return {name: replace(one, mean=-one.mean) for name, one in negated.items()}
    found = dict(estimates(values))
    by_seed: dict[str, dict[int, float]] = {}
    there = values.dropna()
    for (name, seed), value in zip(there.index.tolist(), there.tolist(), strict=True):
        by_seed.setdefault(name, {})[seed] = value
    if not by_seed:
        return found
    first = max(by_seed, key=lambda name: found[name].mean)
    equal = indistinguishable(by_seed, first, constants) if len(by_seed[first]) > 1 else set()
    for name in by_seed:
        if found[name].shown == found[first].shown:  # as printed
            found[name] = replace(found[name], mark="best")
        elif name in equal:
            found[name] = replace(found[name], mark="near")
    return found


def indistinguishable(
    scores: Mapping[str, Mapping[int, float]], best: str, constants: Container[str]
) -> set[str]:
    """The best configurations that the seeds do not tell from the first.

    They end at the first mean that is told from it: a worse one with a wide spread is not among
    them, though its own seeds tell nothing.

    The comparisons hold for all pairs together. Their seeds are those of the best configuration
    that depends on the seed. One that lacks such a seed is not told from the best.

    Args:
        scores: By configuration and seed.
        best: The configuration with the highest mean.
        constants: The configurations whose scores do not depend on the seed; one seed is enough.
    """
    drawn, fixed = {}, {}
    for name, values in scores.items():
        own = list(values.values())
        known = len(own) > 1 or name in constants
        if known and max(own) - min(own) <= TOLERANCE:
            fixed[name] = mean(own)
        elif own:
            drawn[name] = values
    seeds = max(drawn.values(), key=lambda own: mean([*own.values()]), default={}).keys()
    whole = {
        name: {seed: own[seed] for seed in seeds}
        for name, own in drawn.items()
        if own.keys() >= seeds
    }
    family = Family(whole, fixed, len(scores), collapsed=collapsed_seeds(whole))
    found: set[str] = set()
    others = (name for name, values in scores.items() if values and name != best)
    for name in sorted(others, key=lambda name: -mean([*scores[name].values()])):
        comparison = family.compare(best, name)
        if comparison is not None and comparison.verdict == "ESTABLISHED":
            break
        found.add(name)
    return found


def leaderboard_frame(subject: ReportData) -> pd.DataFrame:
    """Every configuration with unrounded values.

    Columns: `rank`, `configuration`, the varied knobs, `data`, `seeds`, and `..._mean`, `..._sd`
    and `..._n` of each score (by its name on the command line), of the averages, and of `hours`
    and `gpu_hours` per trial. `lost` counts lost seeds, if any. `fresh_mean`, `fresh_sd` and
    `fresh_n` describe the first objective on fresh seeds, if any.
    """
    order = subject.over_seeds
    columns: dict[str, Any] = {"rank": range(1, 1 + len(order)), "configuration": order.index}
    columns |= {key: order[key, ""] for key in subject.knobs}
    columns |= {"data": subject.data, "seeds": order["n", ""]}
    for number in dict.fromkeys((*subject.targets, *subject.scores, HOURS, GPU_HOURS)):
        name = number.replace(" ", "_").lower() if ":" not in number else number
        for statistic, suffix in (("mean", "mean"), ("std", "sd"), ("count", "n")):
            columns[f"{name}_{suffix}"] = order[number, statistic]
    if order["lost", ""].any():
        columns["lost"] = order["lost", ""]
    if subject.fresh:
        fresh = [subject.fresh.get(name, Estimate(math.nan, n=0)) for name in order.index]
        for name in ("mean", "sd", "n"):
            columns[f"fresh_{name}"] = [getattr(estimate, name) for estimate in fresh]
    return pd.DataFrame(columns, index=order.index).reset_index(drop=True)
