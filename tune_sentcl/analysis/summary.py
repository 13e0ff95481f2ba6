"""Summary tables: one row per trial or configuration, best first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float64

from tune_sentcl.analysis.conversion import frame_of
from tune_sentcl.config import affects_weights, knobs, varied
from tune_sentcl.history import (
    CONFIRM_ORIGIN,
    Configuration,
    History,
    Result,
    ranked,
)
from tune_sentcl.judging.configurations import study_objectives
from tune_sentcl.objective import (
    Objective,
    mean,
    value_columns,
)
from tune_sentcl.store.study import Study, StudyTables

STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
"""The tasks of the STS average in papers."""

_AVERAGED = tuple(Objective(task, "spearman", "test", "cosine") for task in STS_TASKS)
_RANKED = {"finished": 0, "pruned": 1, "failed": 2}
_TRIAL_COLUMNS = ("trial_id", "configuration", "origin", "status")
_CODE = ("method.name", "code_fingerprint")
_SECONDS = ["train_seconds", "evaluation_seconds"]  # start-up depends on the order of trials


def summaries(
    study: Study, objectives: Sequence[Objective] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables: one row per trial, and `configurations`; the study is read once.

    Finished trials come first, the best objective first. Trials with fresh seeds follow the other
    finished trials and are never in a Pareto front.

    Columns of the first: `trial_id`, `origin`, `status`, `method.name`, every other knob in which
    the trials differ under its dotted key (except knobs that only affect measuring), `seed`,
    `objective`, `sts_avg`, `data`, `seconds`. With several objectives also `objective_2` and so
    on, and `pareto`: whether no other finished trial is better in one objective (a cost is better
    if it is less) and as good in all. `sts_avg` is the mean of the test Spearman correlations of
    the seven STS tasks, times 100; NaN if one is missing. `code_fingerprint` is there if a
    plugin's method ran with more than one code. `objective_test` and so on are the test scores of
    an objective on a dev split of an own task, if any was measured. `seen` and `last_score`,
    if a trial was stopped, are the share of the training that it saw and its score there.
    `data` is `toy` for the generated sets and `root` for files under the data root. `seconds`
    is the time of training and evaluation, without start-up.

    Args:
        study: A running or finished study.
        objectives: The scores to rank by; None: those that its last search maximized.
    """
    chosen = tuple(objectives or study_objectives(study))
    table = _trials(study, chosen)
    return _ranked(table, chosen), _present_first(study, _aggregated(table, chosen))


def configurations(study: Study, objectives: Sequence[Objective] | None = None) -> pd.DataFrame:
    """One row per configuration, aggregated over finished seeds, the best first.

    The order is that of `tune_sentcl.history.rank_keys`; the configurations of a plugin that has
    changed since come last. The column `lost`, if any, counts seeds that have failed or were
    stopped.

    Columns: `configuration`, `method.name`, every other knob in which the trials differ (except
    knobs that only affect measuring), `data`, and for each objective and `sts_avg`: `..._mean`,
    `..._sd` (n - 1; NaN for one seed) and `..._n`, the number of seeds with a score. Fresh seeds
    do not count in these columns; if there are any, `fresh_mean`, `fresh_sd` and `fresh_n`
    describe their first objective.

    Args:
        study: A running or finished study.
        objectives: The scores to rank by; None: those that its last search maximized.
    """
    chosen = tuple(objectives or study_objectives(study))
    return _present_first(study, configurations_of(study, chosen))


def _present_first(study: Study, over_seeds: pd.DataFrame) -> pd.DataFrame:
    """The same rows, those of plugins that have changed since last."""
    is_older = over_seeds["configuration"].isin(study.older()).to_numpy()
    return over_seeds.iloc[np.argsort(is_older, kind="stable")].reset_index(drop=True)


def configurations_of(study: StudyTables, objectives: Sequence[Objective]) -> pd.DataFrame:
    """`configurations` of any study tables."""
    return _aggregated(_trials(study, objectives), objectives)


def test_columns(objectives: Sequence[Objective]) -> dict[str, Objective]:
    """By column, the test score of each objective on a dev split of an own task.

    Test scores that are objectives themselves have columns of their own.
    """
    return {
        f"{name}_test": test
        for name, objective in zip(value_columns(len(objectives)), objectives, strict=True)
        if objective.is_own
        and (test := replace(objective, split="test")) not in (objective, *objectives)
    }


def trials_by(study: Study, objectives: Sequence[Objective]) -> pd.DataFrame:
    """All columns of the trials, with their values of these objectives."""
    history = History.read(study, objectives, None)
    return frame_of(history.with_objectives(history.table))


def _ranked(table: pd.DataFrame, objectives: Sequence[Objective]) -> pd.DataFrame:
    names = list(value_columns(len(objectives)))
    ended = zip(table["status"], table["origin"], strict=True)
    ranks = [_RANKED[status] + (origin == CONFIRM_ORIGIN) / 2 for status, origin in ended]
    stops = [name for name in ("seen", "last_score") if name in table]
    order = table.assign(rank=ranks).sort_values(
        ["rank", "objective", *stops, "trial_id"],
        ascending=[True, False, *(False for _ in stops), True],
        na_position="last",
    )
    if len(objectives) > 1:
        points = order[names].where(order["origin"] != CONFIRM_ORIGIN).to_numpy(float)
        order["pareto"] = front_of(points * [-1 if one.is_cost else 1 for one in objectives])
        names = [*names, "pareto"]
    names += [name for name in (*test_columns(objectives), *stops) if name in table]
    columns = ["trial_id", "origin", "status", *_knobs(table), "seed", *names]
    return order[[*columns, "sts_avg", "data", "seconds"]].reset_index(drop=True)


def _aggregated(table: pd.DataFrame, objectives: Sequence[Objective]) -> pd.DataFrame:
    ended = table[table["status"] == "finished"]
    finished, fresh = (
        ended[ended["origin"] != CONFIRM_ORIGIN],
        ended[ended["origin"] == CONFIRM_ORIGIN],
    )
    groups = finished.groupby("configuration", sort=True)
    tests = [name for name in test_columns(objectives) if name in table]
    named = {
        f"{column}_{name}": (column, statistic)
        for column in (*value_columns(len(objectives)), *tests, "sts_avg")
        for name, statistic in (("mean", "mean"), ("sd", "std"), ("n", "count"))
    }
    own = {knob: (knob, "first") for knob in (*_knobs(table), "data")}
    found: pd.DataFrame = groups.agg(**own, **named).reset_index()
    columns = ["configuration", *own, *named]
    by_name = _configurations(table)
    there = [by_name[name] for name in found["configuration"]]
    # Independent of the order of the seeds, unlike the mean of a pandas group.
    means = [mean(one.chosen_scores().values()) for one in there]
    found["objective_mean"] = pd.array(means, "float64")
    found["lost"] = [len(one.chosen_lost()) for one in there]
    columns += ["lost"] if found["lost"].any() else []
    if len(fresh):
        again = {
            "fresh_mean": ("objective", "mean"),
            "fresh_sd": ("objective", "std"),
            "fresh_n": ("objective", "count"),
        }
        confirmed = fresh.groupby("configuration").agg(**again).reset_index()
        found = found.merge(confirmed, on="configuration", how="left").fillna({"fresh_n": 0})
        found["fresh_n"] = found["fresh_n"].astype(int)
        columns += again
    place = {one.name: number for number, one in enumerate(there)}
    order = [place[one.name] for one in ranked(there)]
    return found[columns].iloc[order].reset_index(drop=True)


def _configurations(table: pd.DataFrame) -> dict[str, Configuration]:
    """The configurations with their first objective, by id."""
    found: dict[str, Configuration] = {}
    columns = ("configuration", "origin", "method.name", "seed", "status", "objective", "lost")
    rows = zip(*(table[name] for name in columns), strict=True)
    for name, origin, method, seed, status, value, lost in rows:
        empty = Configuration(name, "grid", {"method.name": method})
        one = found.setdefault(name, empty)
        values = (None if pd.isna(value) else value,)
        one.results[seed] = Result(status, values, lost=("failed" if lost else None,))
        if origin == CONFIRM_ORIGIN:
            one.fresh.add(seed)
    return found


def _trials(study: StudyTables, objectives: Sequence[Objective]) -> pd.DataFrame:
    """The trials with the knobs in which they differ, and their scores from the history."""
    tests = test_columns(objectives)
    history = History.read(
        study,
        (*objectives, *tests.values(), *_AVERAGED),
        [*_TRIAL_COLUMNS, *_SECONDS, "stages", "code_fingerprint", *knobs()],
    )
    table = history.table
    names = table["trial_id"].to_pylist()
    values = [history.values(name) for name in names]
    frame = frame_of(table.select([*_TRIAL_COLUMNS, *_SECONDS, "seed", *varied_knobs(table)]))
    frame["seconds"] = frame[_SECONDS].sum(axis="columns", skipna=False)
    named = [*value_columns(len(objectives)), *tests]
    for number, name in enumerate(named):
        frame[name] = pd.array([found[number] for found in values], "float64")
    frame = frame.drop(columns=[name for name in tests if frame[name].isna().all()])
    codes = {*zip(*(table[name].to_pylist() for name in _CODE), strict=True)}
    if len(codes) > len({method for method, _ in codes}):
        frame["code_fingerprint"] = table["code_fingerprint"].to_pylist()
    tasks = [found[len(named) :] for found in values]
    averages = [None if None in found else mean(found) for found in tasks]
    frame["sts_avg"] = pd.array(averages, "float64")
    frame["data"] = history.data
    _add_stages(frame, table["stages"].to_pylist())
    ended = zip(names, table["origin"].to_pylist(), strict=True)
    frame["lost"] = pd.array(
        [
            origin != CONFIRM_ORIGIN and history.lost_reason(name) is not None
            for name, origin in ended
        ],
        "bool",
    )
    return frame


def _add_stages(frame: pd.DataFrame, stages: Sequence[Sequence[Mapping[str, Any]] | None]) -> None:
    """Add what stopped trials saw of their training, and their last scores, if there are any."""
    last = [max(ends, key=itemgetter("share")) if ends else None for ends in stages]
    is_stopped = (frame["status"] == "pruned").tolist()
    if any(is_stopped):
        ends = [end if stop else None for end, stop in zip(last, is_stopped, strict=True)]
        frame["seen"] = pd.array([end and end["share"] for end in ends], "float64")
        frame["last_score"] = pd.array([end and end["value"] for end in ends], "float64")


def varied_knobs(table: pa.Table) -> list[str]:
    """The knobs in which trials differ, `method.name` first; see `tune_sentcl.config.varied`.

    Knobs that only affect measuring are left out: trials of one configuration may have been
    measured with different ones.
    """
    keys = [key for key in knobs() if key != "seed" and affects_weights(key)]
    several = [key for key in keys if _has_several(table[key])]
    if not several:
        return ["method.name"]
    distinct = {str(row): at for at, row in enumerate(table.select(several).to_pylist())}
    rows = table.select([*knobs()]).take([*distinct.values()]).to_pylist()
    return [key for key in varied(rows) if affects_weights(key)]


def _has_several(column: pa.ChunkedArray) -> bool:
    if pa.types.is_list(column.type):
        return len(set(map(str, column.to_pylist()))) > 1
    return int(pc.count_distinct(column, mode="all").as_py()) > 1


def _knobs(table: pd.DataFrame) -> list[str]:
    own = [column for column in table.columns if column in knobs() and column != "seed"]
    return [*own, *(["code_fingerprint"] if "code_fingerprint" in table.columns else [])]


def front_of(points: Float64[np.ndarray, "rows objectives"]) -> list[bool]:
    """Which rows no other row dominates; values are maximized, rows with NaN are excluded."""
    front = [False] * len(points)
    whole = np.flatnonzero(~np.isnan(points).any(axis=1))
    # In descending order of the first value, only a row of the front so far can dominate a row.

    order = whole[np.lexsort(-points[whole].T[::-1])]
    best = np.empty((0, points.shape[1]))
    for row in order.tolist():
        point = points[row]
        better = (best >= point).all(axis=1) & (best > point).any(axis=1)
        if not better.any():
            front[row] = True
            best = np.vstack([best, point])
    return front
