"""One row a trial, its scores as columns."""

from collections.abc import Collection, Sequence
from typing import get_args

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.analysis.conversion import frame_of
from tune_sentcl.analysis.summary import varied_knobs
from tune_sentcl.config import SuiteName
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.history import OF_TASKS, data_of
from tune_sentcl.objective import OFFERS, Objective
from tune_sentcl.store.snapshot import STUDY
from tune_sentcl.store.study import StudyTables

_TRIAL = (STUDY, "trial_id", "configuration", "origin", "status")
_NAMED = ("task", "metric", "split", "protocol")
_ASKED = ("suite", "protocol", "data")


def wide(
    tables: StudyTables, *, suite: str | None = None, protocol: str | None = None
) -> pd.DataFrame:
    """See `StudyFrames.wide`."""
    trials = tables.trials()
    scores = tables.scores(["trial_id", *_NAMED, "suite", "data", "value"], OF_TASKS)
    protocols = {name for offers in OFFERS.values() for name in offers}
    scores = _kept(scores, "suite", suite, get_args(SuiteName))
    scores = _kept(scores, "protocol", protocol, protocols)
    data = pa.array(data_of(trials), pa.string())
    there = [name for name in _TRIAL if name in trials.column_names]
    frame = frame_of(trials.select([*there, *varied_knobs(trials), "seed"])).assign(data=data)
    values = _values(scores, trials["trial_id"], data).reindex(frame["trial_id"].to_list())
    return pd.concat([frame, values.set_axis(frame.index)], axis=1)


def _kept(scores: pa.Table, column: str, asked: str | None, known: Collection[str]) -> pa.Table:
    if asked is None:
        return scores
    # A study may hold what this release does not know.
    names = sorted({*known, *pc.unique(scores[column]).to_pylist()})
    if asked not in names:
        rule, move = f"must be one of {', '.join(names)}", "Name one of them, or none for all."
        raise ConfigError(Fault("wide", column, repr(asked), rule, move))
    return scores.filter(pc.field(column) == asked)


def _values(scores: pa.Table, trial_ids: pa.ChunkedArray, data: pa.Array) -> pd.DataFrame:
    """The scores on the data that each trial means, a column each, over classifiers' seeds."""
    places = pc.index_in(scores["trial_id"], value_set=trial_ids.combine_chunks())
    meant = pc.equal(scores["data"], data.take(places.combine_chunks()))
    found = scores.filter(pc.and_(meant, pc.is_finite(scores["value"])))
    means = found.group_by(["trial_id", *_NAMED]).aggregate([("value", "mean")])
    frame = means.to_pandas()
    kinds = frame[list(_NAMED)].drop_duplicates().sort_values(list(_NAMED)).to_numpy().tolist()
    kinds.sort(key=lambda kind: (_place(kind[0]), kind[3] not in OFFERS.get(kind[0], {})))
    names = {tuple(kind): _name(kind) for kind in kinds}
    frame["name"] = [names[kind] for kind in zip(*(frame[n] for n in _NAMED), strict=True)]
    table = frame.pivot(index="trial_id", columns="name", values="value_mean")
    ordered: pd.DataFrame = table.reindex(columns=list(names.values())).rename_axis(columns=None)
    return ordered


def _place(task: str) -> int:
    tasks = list(OFFERS)
    return tasks.index(task) if task in OFFERS else len(tasks)


def _name(kind: Sequence[str]) -> str:
    """As an objective of this kind is written on the command line."""
    task, metric, split, protocol = kind
    return str(Objective(task, metric, split, protocol))
