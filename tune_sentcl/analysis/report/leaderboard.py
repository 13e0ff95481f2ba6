"""Configurations ranked by their scores over seeds."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tune_sentcl.analysis.report.marks import LEGEND, caption, marks
from tune_sentcl.analysis.report.subject import GPU_HOURS, HOURS, Subject
from tune_sentcl.analysis.report.table import Estimate, Hours, Table, Value
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.objective import Objective

_SPREADS = {"mean": "mean", "std": "sd", "count": "n"}


def leaderboards(subject: Subject, most: int) -> Iterator[Table]:
    """The leaderboard, if a trial has finished; at most `most` rows, 0: all."""
    if len(subject.over_seeds):
        yield _table(subject, most)


_SPARE = 1000
ON_DATA = {"toy": " on the generated toy sets", "root": " on the real sets"}


def on_data(objective: Objective, data: str) -> str:
    """Which of SentEval's sets a score is on; empty for a user's own task."""
    return "" if objective.is_own else ON_DATA[data]


def _table(subject: Subject, most: int) -> Table:
    labels, part = [subject.labels[key] for key in subject.knobs], subject.over_seeds
    shown = part.head(max(most, _SPARE)) if most else part
    lost = bool(part["lost", ""].any())
    has_fresh = bool(len(subject.fresh))
    rows = []
    for index, (_, row) in enumerate(shown.iterrows(), 1):
        values: list[Value] = [index]
        values += [subject.estimate(row, target) for target in subject.targets]
        values[2:2] = [_fresh(subject, row)] if has_fresh else []
        values.append(int(row["n", ""]))
        values += [int(row["lost", ""])] if lost else []
        values += subject.stated(row["configuration", ""])
        rows.append(
            (*values, Hours(row[subject.cost, "mean"]), subject.brief(row["configuration", ""]))
        )
    targets = [subject.title(target) for target in subject.targets]
    targets[1:1] = ["fresh seeds"] if has_fresh else []
    seeds = ("seeds",) + ("lost",) * lost
    columns = ("rank", *targets, *seeds, *labels, subject.cost_title, "configuration")
    scores, ids = subject.by_seed, shown["configuration", ""].tolist()
    places = {1 + y + (y > 0) * has_fresh: scores[t] for y, t in enumerate(subject.targets)}
    best, near = marks(rows, ids, places, subject.constants)
    first = 1 + len(targets) + len(seeds)
    count = most or len(rows)
    return Table(
        name="leaderboard",
        title="Leaderboard",
        columns=columns,
        rows=tuple(rows[:count]),
        best=best,
        note=_note(subject, part),
        more=max(0, len(part) - count),
        near=near,
        ids=tuple(map(subject.brief, ids)),
        spare=tuple(rows[count:]),
        caption=caption(
            f"Scores times 100{on_data(subject.objectives[0], subject.data)}",
            shown["n", ""],
            subject.averaged(subject.targets),
        ),
        knobs=range(first, first + len(labels)),
        scores=range(1, 1 + len(targets)),
    )


def _fresh(subject: Subject, row: "pd.Series[Any]") -> Estimate | None:
    """The first objective on fresh seeds."""
    key = row["configuration", ""]
    if key not in subject.fresh.index:
        return None
    values = subject.fresh[key]
    return Estimate(mean(values), sd(values), len(values))


def _note(subject: Subject, part: pd.DataFrame) -> str:
    ranked = (
        f"Ranked by {subject.title(str(subject.objectives[0]))}; times 100, mean ± sd over seeds."
    )
    if part["n", ""].nunique() > 1:
        ranked += " Those with the most seeds come first."
    if len(subject.fresh):
        ranked += " Fresh seeds: the same score on seeds that the search did not use."
    if part["lost", ""].any():
        ranked += " Configurations that lost a seed, failed or stopped, come last."
    single = int((part["n", ""] == 1).sum())
    ranked += f" Time: without start-up.{subject.averaged(subject.targets)} {LEGEND}."
    if single == len(part):
        return f"{ranked} Each configuration has one seed: small differences may be luck."
    return f"{ranked} {single} of {len(part)} have one seed." if single else ranked


def leaderboard_frame(subject: Subject, *, details: bool = True) -> pd.DataFrame:
    """Every configuration with unrounded values; without `details` no ids and no times.

    Columns: `rank`, `configuration`, the varied knobs, `data`, `seeds`, and `..._mean`, `..._sd`
    and `..._n` of each score (by its name on the command line), of the averages, and of `hours`
    and `gpu_hours` per trial. `lost` counts lost seeds, if any. `fresh_mean`, `fresh_sd` and
    `fresh_n` describe the first objective on fresh seeds, if any.
    """
    found = subject.over_seeds
    columns: dict[str, Any] = {"rank": range(1, 1 + len(found))}
    columns |= {"configuration": found["configuration", ""]} if details else {}
    columns |= {key: found[key, ""] for key in subject.knobs}
    columns |= {"data": [subject.data] * len(found), "seeds": found["n", ""].astype(int)}
    numbers = [*subject.targets, *(s for s in subject.scores if s not in subject.targets)]
    for number in (*numbers, *((HOURS, GPU_HOURS) if details else ())):
        name = number.replace(" ", "_").lower() if ":" not in number else number
        for statistic, suffix in _SPREADS.items():
            columns[f"{name}_{suffix}"] = found[number, statistic]
    if found["lost", ""].any():
        columns["lost"] = found["lost", ""].astype(int)
    if len(subject.fresh):
        fresh = [_fresh(subject, row) or Estimate(math.nan, n=0) for _, row in found.iterrows()]
        for name in ("mean", "sd", "n"):
            columns[f"fresh_{name}"] = [getattr(estimate, name) for estimate in fresh]
    return pd.DataFrame(columns)
