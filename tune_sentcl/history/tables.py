"""A study's tables as a history reads them: filtered in Arrow, without an object a score."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import evaluation_data_of
from tune_sentcl.objective import Objective
from tune_sentcl.score import Measurement

KEYS = ("data", "task", "split", "protocol", "classifier_seed")
"""The columns of a measurement, in its order; `with_measured` adds the last one."""
_MEASURED = "measured"
MEASUREMENT = (*KEYS, _MEASURED)

OF_TASKS = pc.field("subset").is_null() & (
    pc.field("aggregation").is_null() | (pc.field("aggregation") == "all")
)
"""Picks the scores of whole tasks, of joined pairs where these have subsets."""


def data_of(trials: pa.Table) -> list[str]:
    """Whose evaluation sets each row of a trials table was scored on."""
    keys = ("evaluation.data", "data.source")
    rows = zip(*(trials[key].to_pylist() for key in keys), strict=True)
    return [evaluation_data_of(dict(zip(keys, row, strict=True))) for row in rows]


def meant_on(trials: pa.Table, data: Sequence[str]) -> pa.Table:
    """Rows that say on whose sets they are meant, where they say something else."""
    keys = ("evaluation.data", "config")
    columns = [trials[key].to_pylist() for key in keys]
    for place, (before, now) in enumerate(zip(data_of(trials), data, strict=True)):
        if before != now:
            config = json.loads(columns[1][place])
            config["evaluation"]["data"] = columns[0][place] = now
            columns[1][place] = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    for key, values in zip(keys, columns, strict=True):
        column = pa.array(values, pa.string())
        trials = trials.set_column(trials.column_names.index(key), key, column)
    return trials


def among(trial_ids: Iterable[str]) -> pc.Expression:
    """Picks the rows of some trials."""
    return pc.field("trial_id").isin(pa.array(sorted(trial_ids), pa.string()))


def rows_of(objective: Objective, table: pa.Table) -> pa.Table:
    """The rows of an objective, in a table of scores of whole tasks."""
    names = ("task", "metric", "split", "protocol")
    wanted = [pc.field(name) == getattr(objective, name) for name in names]
    return table.filter(wanted[0] & wanted[1] & wanted[2] & wanted[3])


def with_measured(scores: pa.Table) -> pa.Table:
    """Scores with the metric where each metric is a measurement of its own, else null."""
    alone = pc.match_substring_regex(scores["protocol"], "^retrieval(@|$)")
    metrics = pc.if_else(alone, scores["metric"], pa.scalar(None, pa.string()))
    return scores.append_column(_MEASURED, metrics)


def by_trial(table: pa.Table) -> Iterator[tuple[str, frozenset[Measurement]]]:
    """What each trial has numbers of; one set for all trials that have the same.

    Args:
        table: From `with_measured`.
    """
    if not len(table):
        return
    codes = np.zeros(len(table), np.int64)
    words: list[list[Any]] = []
    for key in MEASUREMENT:
        encoded = table[key].combine_chunks().dictionary_encode("encode")
        words.append(encoded.dictionary.to_pylist())
        codes = codes * len(words[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    names = table["trial_id"].combine_chunks().dictionary_encode()
    kinds, kind = np.unique(codes, return_inverse=True)
    both = np.unique(names.indices.to_numpy().astype(np.int64) * len(kinds) + kind)
    trials, kind = np.divmod(both, len(kinds))
    starts = np.flatnonzero(np.diff(trials, prepend=-1))
    measurements = [_decoded(code, words) for code in kinds.tolist()]
    sets: dict[bytes, frozenset[Measurement]] = {}
    ids = names.dictionary.to_pylist()
    for trial, part in zip(trials[starts].tolist(), np.split(kind, starts[1:]), strict=True):
        kinds_held = part.tobytes()
        if kinds_held not in sets:
            sets[kinds_held] = frozenset(measurements[number] for number in part.tolist())
        yield ids[trial], sets[kinds_held]


def _decoded(code: int, words: Sequence[Sequence[Any]]) -> Measurement:
    values = []
    for dictionary in reversed(words):
        code, place = divmod(code, len(dictionary))
        values.append(dictionary[place])
    return Measurement(*reversed(values))
