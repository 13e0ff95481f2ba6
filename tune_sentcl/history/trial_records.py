"""Records of trials, and functions that fill them from a study's tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import Fingerprints, TrialConfig, evaluation_data_of
from tune_sentcl.objective import Objective
from tune_sentcl.score import Measurement

NO_FAILURES: Mapping[Measurement, str] = {}

Status = Literal["finished", "pruned", "failed"]
LostReason = Literal["pruned", "failed"]
"""Why a seed has no score: its trial was pruned, or the trial or the score failed."""

Action = Literal["train", "measure"]
"""The work that a trial needs: to train, or to score its kept weights."""


Origin = Literal["grid", "sampler"]
"""Whether a configuration comes from the grid or from the sampler."""


@dataclass(frozen=True)
class Assignment:
    """One trial to run.

    Attributes:
        trial_id: The trial.
        configuration: Its configuration.
        config: The config with the trial's seed.
        origin: Whether the grid or the sampler requested it.
        fingerprints: Content hashes of the inputs that the driver read; a worker must read the
            same content.
        action: Whether to train or to measure.
        attempt_files: The label of this attempt's files; see `store.trial_folders`.
        files_before: The label that the trial's row names now; empty without a row.
        until: The share of its training after which the trial pauses; 1: it does not pause.
        pause_above: The state at the pause is kept if its score is at least this; None: the state
            is not kept.
        graphs: Whether a GPU may train the trial with CUDA graphs.
    """

    trial_id: str
    configuration: str
    config: TrialConfig
    origin: Origin
    fingerprints: Fingerprints
    action: Action = "train"
    attempt_files: str = ""
    files_before: str = ""
    until: float = 1.0
    pause_above: float | None = None
    graphs: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an ended trial.

    Attributes:
        status: As in the trials table.
        values: The objectives of a finished trial, times 100; None for a missing value.
        stages: Its scores at the ends of stages, times 100, by the share of a whole training.
        error_type: The class of a failed trial's error.
        lost: For each objective, why its value is missing; None if it is not missing or was never
            measured.
        precision: The precision of the training; None if it was not asked for.
    """

    status: Status
    values: tuple[float | None, ...] = ()
    stages: Mapping[float, float] = field(default_factory=dict)
    error_type: str | None = None
    lost: tuple[LostReason | None, ...] = ()
    precision: str | None = None


@dataclass(slots=True)
class TrialRecord:
    """The state of one trial; trials with equal sets of measurements share one set."""

    status: Status
    attempt: int
    measured: frozenset[Measurement] = frozenset()
    failures: Mapping[Measurement, str] = field(default_factory=lambda: NO_FAILURES)
    objective_values: dict[tuple[int, int | None], float] = field(default_factory=dict)
    stages: dict[float, float] = field(default_factory=dict)
    error_type: str | None = None


KEYS = ("data", "task", "split", "protocol", "classifier_seed")
"""The columns of a measurement, in order; `with_measured_metric` adds one more, the metric."""
_MEASURED = "measured"
MEASUREMENT = (*KEYS, _MEASURED)

WHOLE_TASKS = pc.field("subset").is_null() & (
    pc.field("aggregation").is_null() | (pc.field("aggregation") == "all")
)
"""Selects the scores of whole tasks; for a task with subsets, the score over all its pairs."""


def evaluation_data_of_rows(trials: pa.Table) -> list[str]:
    """The evaluation data (`toy` or `root`) of each row of a trials table."""
    keys = ("evaluation.data", "data.source")
    rows = zip(*(trials[key].to_pylist() for key in keys), strict=True)
    return [evaluation_data_of(dict(zip(keys, row, strict=True))) for row in rows]


def objective_rows(objective: Objective, table: pa.Table) -> pa.Table:
    """The rows of an objective in a table of scores of whole tasks."""
    names = ("task", "metric", "split", "protocol")
    wanted = [pc.field(name) == getattr(objective, name) for name in names]
    return table.filter(wanted[0] & wanted[1] & wanted[2] & wanted[3])


def with_measured_metric(scores: pa.Table) -> pa.Table:
    """Add a column: the metric of protocols that measure each metric separately, else null."""
    own_measurement = pc.match_substring_regex(scores["protocol"], "^retrieval(@|$)")
    metrics = pc.if_else(own_measurement, scores["metric"], pa.scalar(None, pa.string()))
    return scores.append_column(_MEASURED, metrics)


def measurements_by_trial(table: pa.Table) -> Iterator[tuple[str, frozenset[Measurement]]]:
    """The measurements of each trial in a table from `with_measured_metric`.

    Trials with equal sets share one object. A `Measurement` is made for each kind of row, not for
    each row, because that is faster.
    """
    if not len(table):
        return
    texts = [pc.fill_null(pc.cast(table[key], pa.string()), "") for key in MEASUREMENT]
    kinds = pc.binary_join_element_wise(*texts, "\0").combine_chunks().dictionary_encode()
    _, firsts, kind = np.unique(kinds.indices, return_index=True, return_inverse=True)
    rows = table.select(MEASUREMENT).take(firsts).to_pylist()
    measurements = [Measurement(*row.values()) for row in rows]
    names = table["trial_id"].combine_chunks().dictionary_encode()
    trial_and_kind = np.unique(names.indices.to_numpy().astype(np.int64) * len(rows) + kind)
    trials, kind = np.divmod(trial_and_kind, len(rows))
    starts = np.flatnonzero(np.diff(trials, prepend=-1))
    sets: dict[bytes, frozenset[Measurement]] = {}
    ids = names.dictionary.to_pylist()
    for trial, part in zip(trials[starts].tolist(), np.split(kind, starts[1:]), strict=True):
        kinds_of_trial = part.tobytes()
        if kinds_of_trial not in sets:
            sets[kinds_of_trial] = frozenset(measurements[number] for number in part.tolist())
        yield ids[trial], sets[kinds_of_trial]
