"""Dataclasses of the rows that callers write, and their conversion to Arrow tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal

import pyarrow as pa

from tune_sentcl.config import TrialConfig, completed, flatten, knobs, nest
from tune_sentcl.objective import MAX_OBJECTIVES, objective_columns
from tune_sentcl.score import Score
from tune_sentcl.store.provenance import library_versions
from tune_sentcl.store.schema import CURVES, LIBRARIES, SCORES, trials_schema

RUN_COLUMNS = (
    "steps",
    "started_at",
    "wall_seconds",
    "startup_seconds",
    "train_seconds",
    "evaluation_seconds",
    "gpu_seconds",
    "saving_seconds",
    "encoded_sentences",
    "encoding_seconds",
    "peak_memory_bytes",
    "device",
    "precision_used",
    "host",
    "cpus",
    "gpus",
    "data_source",
    "data_fingerprint",
    "checkpoint_fingerprint",
    "selection_fingerprint",
    "code_fingerprint",
    "git_commit",
    "notes",
    *(f"version_{name}" for name in LIBRARIES),
)
"""The columns that describe the run of a trial: time, resources, data, versions."""

CONFIRM_ORIGIN: Final = "confirm"
"""The origin of trials on fresh seeds, which confirm a choice and take no part in it."""


@dataclass(frozen=True)
class CurvePoint:
    """One point of a curve over training.

    Attributes:
        step: Optimizer steps done.
        epoch: Passes over the training rows, as a fraction.
        samples: Training rows seen.
        metric: `loss`, `lr`, or the name of a dev score.
        value: In the metric's unit; scores times 100.
    """

    step: int
    epoch: float
    samples: int
    metric: str
    value: float


@dataclass(frozen=True)
class TrialRow:
    """How one trial ended: a row of the trials table.

    Attributes:
        config: The trial's config with its seed; gives the knob columns and the JSON.
        trial_id: See `tune_sentcl.config.trial_id`.
        configuration: See `tune_sentcl.config.configuration_id_of`.
        space: The name of the study's space.
        origin: Whether the grid, the sampler, a single run or a confirmation requested it.
        status: How it ended.
        steps: Optimizer steps done.
        stages: Its scores at the ends of stages: `objective`, `share` of a whole training, and
            `value` times 100; None without any.
        started_at: Its start, with a time zone.
        wall_seconds: From start to end.
        startup_seconds: Of `wall_seconds`, the part before training: reading, loading, encoding by
            a frozen encoder, and the extra time of the first step over a later one.
        train_seconds: Of `wall_seconds`, training.
        evaluation_seconds: Of `wall_seconds`, evaluation.
        gpu_seconds: `wall_seconds` times `gpus`.
        saving_seconds: Of `wall_seconds`, writing states to resume from.
        encoded_sentences: Sentences that a frozen encoder encoded; 0 if all were cached, None if
            the encoder is trained.
        encoding_seconds: Of `wall_seconds`, that encoding, or the wait for another trial's.
        peak_memory_bytes: Peak memory of the accelerator, or of the process without one.
        device: Name of the accelerator, or `cpu`.
        precision_used: What matrix products of training were computed in: fp32, tf32 or bf16.
        host: Name of the machine.
        cpus: Assigned cores.
        gpus: Assigned accelerators; a fraction if one is shared.
        data_source: The resolved source of the training rows.
        data_fingerprint: See `tune_sentcl.config.Fingerprints`.
        checkpoint_fingerprint: See `tune_sentcl.config.Fingerprints`.
        selection_fingerprint: See `tune_sentcl.config.Fingerprints`; None if empty.
        code_fingerprint: See `tune_sentcl.config.Fingerprints`; None if empty.
        git_commit: See `tune_sentcl.store.provenance.git_commit`.
        versions: Versions by library; by default those of this process.
        objectives: Each objective's name, as TASK:METRIC:SPLIT, and its value times 100.
        error_type: The class of the error that made it fail.
        error_text: The message of that error.
        notes: Automatic corrections during the run, as text.
        attempt: 1 for the first run, one more for each repetition.
        attempt_files: The label of the trial's effective files in `scores` and `curves`.
    """

    config: TrialConfig
    _: KW_ONLY
    trial_id: str
    configuration: str
    space: str
    origin: Literal["grid", "sampler", "single", "confirm"]
    status: Literal["finished", "pruned", "failed"]
    steps: int | None = None
    stages: tuple[Mapping[str, Any], ...] | None = None
    started_at: datetime | None = None
    wall_seconds: float | None = None
    startup_seconds: float | None = None
    train_seconds: float | None = None
    evaluation_seconds: float | None = None
    gpu_seconds: float | None = None
    saving_seconds: float | None = None
    encoded_sentences: int | None = None
    encoding_seconds: float | None = None
    peak_memory_bytes: int | None = None
    device: str | None = None
    precision_used: str | None = None
    host: str | None = None
    cpus: int | None = None
    gpus: float | None = None
    data_source: str | None = None
    data_fingerprint: str | None = None
    checkpoint_fingerprint: str | None = None
    selection_fingerprint: str | None = None
    code_fingerprint: str | None = None
    git_commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=library_versions)
    objectives: tuple[tuple[str, float | None], ...] = ()
    error_type: str | None = None
    error_text: str | None = None
    notes: str | None = None
    attempt: int = 1
    attempt_files: str | None = None

    def __post_init__(self) -> None:
        if self.started_at is not None and self.started_at.tzinfo is None:
            raise ValueError("started_at must have a time zone: datetime.now(UTC)")
        if len(self.objectives) > MAX_OBJECTIVES:
            raise ValueError(f"a trial has {MAX_OBJECTIVES} objectives at most")

    def values(self) -> dict[str, Any]:
        """The values by column name."""
        run_columns = {f.name: getattr(self, f.name) for f in fields(self)}
        del run_columns["config"], run_columns["versions"], run_columns["objectives"]
        for number, (name, value) in enumerate(self.objectives, 1):
            run_columns.update(zip(objective_columns(number), (name, value), strict=True))
        # `completed` resolves `auto` like the trial's id, if the search has not resolved it.
        config = nest(completed(self.config.dotted()), "config")
        values = {
            **run_columns,
            **_knob_values(config),
            "config": json.dumps(config, ensure_ascii=False, separators=(",", ":")),
            **{f"version_{name}": version for name, version in self.versions.items()},
        }
        return {name: _encodable(value) for name, value in values.items()}


def _encodable(value: Any) -> Any:
    """A value whose text is UTF-8, which paths and errors of the system may not be."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def stored_run_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `RUN_COLUMNS` of a stored row, if present, to keyword arguments of `TrialRow`."""
    run_columns = {n: row[n] for n in RUN_COLUMNS if n in row and not n.startswith("version_")}
    versions = {name: row.get(f"version_{name}") for name in LIBRARIES}
    return {**run_columns, "versions": {n: version for n, version in versions.items() if version}}


def trials_table(rows: Sequence[TrialRow]) -> pa.Table:
    """Rows as a table of schema `trials_schema()`."""
    return _table([row.values() for row in rows], trials_schema())


def scores_table(trial_id: str, scores: Iterable[Score]) -> pa.Table:
    """One trial's scores as a table of schema `SCORES`."""
    return _table_of(trial_id, list(scores), SCORES)


def stored_scores(table: pa.Table) -> list[Score]:
    """The rows of a table of schema `SCORES` as scores."""
    names = [f.name for f in fields(Score)]
    return [Score(**row) for row in table.select(names).to_pylist()]


def curves_table(trial_id: str, points: Sequence[CurvePoint]) -> pa.Table:
    """One trial's curves as a table of schema `CURVES`."""
    return _table_of(trial_id, points, CURVES)


def _table_of(trial_id: str, records: Sequence[object], schema: pa.Schema) -> pa.Table:
    """Records whose attributes are the columns behind `trial_id`."""
    columns = [[trial_id] * len(records)]
    columns += [[getattr(one, f.name) for one in records] for f in list(schema)[1:]]
    return pa.table(columns, schema=schema)


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    # One array of structs, because converting column by column takes three times as long.
    return pa.Table.from_arrays(pa.array(rows, pa.struct(schema)).flatten(), schema=schema)


def _knob_values(config: Mapping[str, Any]) -> dict[str, Any]:
    all_knobs = knobs()
    # A count is a number or "all"; its column is text.
    return {
        key: str(value) if all_knobs[key].kind == "str" and value is not None else value
        for key, value in flatten(config)
    }


def with_search_origins(trials: pa.Table, origins: Mapping[str, str]) -> pa.Table:
    """Replace the origin `confirm` of trials that also took part in a choice.

    Args:
        trials: The table.
        origins: By trial, another origin than `confirm` that it also has.
    """
    columns = (trials[name].to_pylist() for name in ("trial_id", "origin"))
    found = [
        origins.get(name, origin) if origin == CONFIRM_ORIGIN else origin
        for name, origin in zip(*columns, strict=True)
    ]
    column = trials.column_names.index("origin")
    return trials.set_column(column, trials.schema.field("origin"), pa.array(found, pa.string()))
