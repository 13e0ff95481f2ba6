"""What can be known of a trial, and the tables of a study as a history reads them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import Fingerprints, TrialConfig, evaluation_data_of
from tune_sentcl.objective import Objective
from tune_sentcl.score import Measurement

NO_FAILURES: Mapping[Measurement, str] = {}

Status = Literal["finished", "pruned", "failed"]
LostReason = Literal["pruned", "failed"]
"""How a seed is lost: its trial was stopped at a rung, or has failed or its score has."""

Action = Literal["train", "measure", "retrain"]
"""What there is to do for a trial: train it; measure its kept weights; train it again, for a score
that is lacking and whose weights were not kept."""


Origin = Literal["grid", "sampler"]
"""Whether a configuration comes from the grid or from the sampler."""


@dataclass(frozen=True)
class Assignment:
    """One trial to run.

    Attributes:
        trial_id: Its name.
        configuration: Its configuration's name.
        config: The trial.
        origin: Who asked for it.
        fingerprints: Of what the driver has read for it; a worker must read the same.
        action: What there is to do.
        attempt_files: The label that this attempt's files get; see `store.segments`.
        files_before: The label that the trial's row names now.
    """

    trial_id: str
    configuration: str
    config: TrialConfig
    origin: Origin
    fingerprints: Fingerprints
    action: Action = "train"
    attempt_files: str = ""
    files_before: str = ""


@dataclass(frozen=True)
class RequestedScores:
    """What a search wants to know of a trial.

    Attributes:
        data: Whose evaluation sets count: `toy` or `root`.
        measurements: Every one that its settings ask for and whose sets can be read.
    """

    data: str
    measurements: frozenset[Measurement]


@dataclass(frozen=True, slots=True)
class Result:
    """How a trial ended.

    Attributes:
        status: As in the trials table.
        values: One number an objective, where it finished; None for one that has no value.
        rows: Rows seen at its last evaluation point, where it was pruned.
        dev: The score by which trials are compared, there; None where it was not measured.
        error_type: The class of its error, where it failed.
    """

    status: Status
    values: tuple[float | None, ...] = ()
    rows: int = 0
    dev: float | None = None
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class StoredConfiguration:
    """One configuration of a study.

    Attributes:
        name: Its name.
        config: One of its trials' config as JSON.
        trial_ids: Its trials.
        origins: Who asked for each of them.
    """

    name: str
    config: str
    trial_ids: list[str]
    origins: list[str]


@dataclass(slots=True)
class TrialRecord:
    """What is known of one trial; sets are shared among trials that hold the same."""

    status: Status
    attempt: int
    measured: frozenset[Measurement] = frozenset()
    failures: Mapping[Measurement, str] = field(default_factory=lambda: NO_FAILURES)
    objective_values: dict[tuple[str, int, int | None], float] = field(default_factory=dict)
    pruned_at: tuple[int, float] | None = None
    error_type: str | None = None
    data: str = "root"


KEYS = ("data", "task", "split", "protocol", "classifier_seed")
"""The columns of a measurement, in its order; `with_measured_metric` adds the last one."""
_MEASURED = "measured"
MEASUREMENT = (*KEYS, _MEASURED)

WHOLE_TASKS = pc.field("subset").is_null() & (
    pc.field("aggregation").is_null() | (pc.field("aggregation") == "all")
)
"""Picks the scores of whole tasks, of joined pairs where these have subsets."""


def evaluation_data_of_rows(trials: pa.Table) -> list[str]:
    """Whose evaluation sets each row of a trials table was scored on."""
    keys = ("evaluation.data", "data.source")
    rows = zip(*(trials[key].to_pylist() for key in keys), strict=True)
    return [evaluation_data_of(dict(zip(keys, row, strict=True))) for row in rows]


def with_evaluation_data(trials: pa.Table, data: Sequence[str]) -> pa.Table:
    """Rows that say on whose sets they are meant, where they say something else."""
    keys = ("evaluation.data", "config")
    columns = [trials[key].to_pylist() for key in keys]
    for index, (before, now) in enumerate(zip(evaluation_data_of_rows(trials), data, strict=True)):
        if before != now:
            config = json.loads(columns[1][index])
            config["evaluation"]["data"] = columns[0][index] = now
            columns[1][index] = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    for key, values in zip(keys, columns, strict=True):
        column = pa.array(values, pa.string())
        trials = trials.set_column(trials.column_names.index(key), key, column)
    return trials


def of_trials(trial_ids: Iterable[str]) -> pc.Expression:
    """Picks the rows of some trials."""
    return pc.field("trial_id").isin(pa.array(sorted(trial_ids), pa.string()))


def objective_rows(objective: Objective, table: pa.Table) -> pa.Table:
    """The rows of an objective, in a table of scores of whole tasks."""
    names = ("task", "metric", "split", "protocol")
    wanted = [pc.field(name) == getattr(objective, name) for name in names]
    return table.filter(wanted[0] & wanted[1] & wanted[2] & wanted[3])


def with_measured_metric(scores: pa.Table) -> pa.Table:
    """Scores with the metric where each metric is a measurement of its own, else null."""
    own_measurement = pc.match_substring_regex(scores["protocol"], "^retrieval(@|$)")
    metrics = pc.if_else(own_measurement, scores["metric"], pa.scalar(None, pa.string()))
    return scores.append_column(_MEASURED, metrics)


def measurements_by_trial(table: pa.Table) -> Iterator[tuple[str, frozenset[Measurement]]]:
    """What each trial has numbers of; one set for all trials that have the same.

    Args:
        table: From `with_measured_metric`.
    """
    if not len(table):
        return
    codes = np.zeros(len(table), np.int64)
    dictionaries: list[list[Any]] = []
    for key in MEASUREMENT:
        encoded = table[key].combine_chunks().dictionary_encode("encode")
        dictionaries.append(encoded.dictionary.to_pylist())
        codes = codes * len(dictionaries[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    names = table["trial_id"].combine_chunks().dictionary_encode()
    kinds, kind = np.unique(codes, return_inverse=True)
    trial_and_kind = np.unique(names.indices.to_numpy().astype(np.int64) * len(kinds) + kind)
    trials, kind = np.divmod(trial_and_kind, len(kinds))
    starts = np.flatnonzero(np.diff(trials, prepend=-1))
    measurements = [_decode_measurement(code, dictionaries) for code in kinds.tolist()]
    sets: dict[bytes, frozenset[Measurement]] = {}
    ids = names.dictionary.to_pylist()
    for trial, part in zip(trials[starts].tolist(), np.split(kind, starts[1:]), strict=True):
        kinds_of_trial = part.tobytes()
        if kinds_of_trial not in sets:
            sets[kinds_of_trial] = frozenset(measurements[number] for number in part.tolist())
        yield ids[trial], sets[kinds_of_trial]


def _decode_measurement(code: int, dictionaries: Sequence[Sequence[Any]]) -> Measurement:
    values = []
    for dictionary in reversed(dictionaries):
        code, index = divmod(code, len(dictionary))
        values.append(dictionary[index])
    return Measurement(*reversed(values))
