"""The rows and columns of a study's tables.

Each column of `trials` is a hyperparameter or a field of `TrialRow`; a new one becomes a nullable
column. Adding a column keeps `SCHEMA_VERSION`. Removing a column or changing its meaning needs a
new version. This package refuses studies of other versions.
"""

import importlib.metadata
import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal

import pyarrow as pa

from tune_sentcl.config import TrialConfig, cached, completed, flatten, knobs, nest
from tune_sentcl.objective import MAX_OBJECTIVES, objective_columns
from tune_sentcl.score import Score

SCHEMA_VERSION = 1
"""The schema number in `study.json` and in every Parquet file."""

LIBRARIES = ("tune_sentcl", "python", "torch", "transformers", "ray", "optuna")
"""The packages with a column `version_...`."""

TABLES = ("trials", "scores", "curves")
"""The folders of the tables."""

CONFIRM_ORIGIN: Final = "confirm"
"""The origin of trials with confirmation seeds, which take no part in any choice."""


@cache
def library_versions() -> Mapping[str, str]:
    """Versions by the names in `LIBRARIES`; libraries that are not installed are left out."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        if name != "python":
            try:
                versions[name] = importlib.metadata.version(name.replace("_", "-"))
            except importlib.metadata.PackageNotFoundError:
                continue
    return MappingProxyType(versions)


@dataclass(frozen=True)
class CurvePoint:
    """One point of a curve over training.

    Attributes:
        step: Optimizer steps done.
        epoch: Passes over the training rows, including a fraction.
        samples: Training rows seen.
        metric: `loss`, `lr`, or the name of a dev score.
        value: The value in the metric's unit; scores are times 100.
    """

    step: int
    epoch: float
    samples: int
    metric: str
    value: float


@dataclass(frozen=True)
class TrialRow:
    """A row of the trials table: one ended trial.

    Attributes:
        config: The trial's config with its seed; it fills the columns of hyperparameters and
            `config`.
        trial_id: See `tune_sentcl.config.trial_id`.
        configuration: See `tune_sentcl.config.configuration_id_of`.
        space: The name of the study's space.
        origin: Whether the grid, the sampler, a single run or a confirmation requested it.
        status: Whether it finished, was stopped or failed.
        steps: Optimizer steps done.
        stages: Its scores at the ends of stages: `objective`, `share` of a whole training, and
            `value` times 100; None without any.
        started_at: Its start, with a time zone.
        wall_seconds: Seconds from start to end.
        startup_seconds: The part of `wall_seconds` before training: reading, loading, encoding by
            a frozen encoder, and the time by which the first step exceeds a later step. None:
            included in `train_seconds`.
        train_seconds: The part of `wall_seconds` for training.
        evaluation_seconds: The part of `wall_seconds` for evaluation.
        gpu_seconds: `wall_seconds` times `gpus`.
        saving_seconds: The part of `wall_seconds` for writing states to resume from.
        encoded_sentences: Sentences that a frozen encoder encoded; 0 if all were cached, None if
            the encoder is trained.
        encoding_seconds: The part of `wall_seconds` for that encoding, or for waiting until
            another trial encoded.
        peak_memory_bytes: Peak memory of the accelerator, or of the process without one.
        device: Name of the accelerator, or `cpu`.
        precision_used: The arithmetic of the training's matrix products: fp32, tf32 or bf16; None
            if no step was taken.
        host: Name of the machine.
        cpus: Assigned cores.
        gpus: Assigned accelerators; a fraction if one is shared.
        data_source: The resolved source of the training rows.
        data_fingerprint: See `tune_sentcl.config.Fingerprints`.
        checkpoint_fingerprint: See `tune_sentcl.config.Fingerprints`.
        selection_fingerprint: See `tune_sentcl.config.Fingerprints`; None if empty.
        code_fingerprint: See `tune_sentcl.config.Fingerprints`; None if empty.
        git_commit: See `tune_sentcl.store.manifest.git_commit`.
        versions: Versions by library; by default those of this process.
        objectives: Each objective's name, as TASK:METRIC:SPLIT, and its value times 100.
        error_type: The class of the error that ended a failed trial.
        error_text: The message of that error.
        notes: Automatic corrections during the trial, as text.
        attempt: 1 for the first attempt, one more for each repetition.
        attempt_files: The label of the attempt whose files count; see `store.trial_folders`.
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
        # If the search has not resolved a value `auto`, `completed` does, just as it does for
        # trial ids.
        config = nest(completed(self.config.dotted()), "config")
        values = {
            **run_columns,
            **_knob_values(config),
            "config": json.dumps(config, ensure_ascii=False, separators=(",", ":")),
            **{f"version_{name}": version for name, version in self.versions.items()},
        }
        return {name: _encodable(value) for name, value in values.items()}


_TYPES: Mapping[Any, pa.DataType] = {
    str | None: pa.string(),
    int | None: pa.int64(),
    int: pa.int64(),
    float | None: pa.float64(),
    datetime | None: pa.timestamp("ms", tz="UTC"),
    tuple[Mapping[str, Any], ...] | None: pa.list_(
        pa.struct({"objective": pa.string(), "share": pa.float64(), "value": pa.float64()})
    ),
}
_KNOB_TYPES = {
    "float": pa.float64(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    "str": pa.string(),
    "list": pa.list_(pa.string()),
    "ints": pa.list_(pa.int64()),
}
_METADATA = {"tune_sentcl.schema": str(SCHEMA_VERSION)}
_IDENTITY = ("trial_id", "configuration", "space", "origin", "status")
_ENDS = ("stages", "error_type", "error_text", "attempt", "attempt_files")
_SPREAD = ("config", "versions", "objectives")
"""Fields that fill columns of other names."""

# A field of a type without an entry raises a KeyError when this module is imported.
_COLUMNS = {f.name: _TYPES[f.type] for f in fields(TrialRow) if f.name not in _IDENTITY + _SPREAD}
_VERSIONS = tuple(f"version_{name}" for name in LIBRARIES)

RUN_COLUMNS = (*(name for name in _COLUMNS if name not in _ENDS), *_VERSIONS)
"""The columns that describe a trial's run: time, resources, data, versions."""


@cached
def trials_schema() -> pa.Schema:
    """The schema of `trials`: one row per trial."""
    identity = [pa.field(name, pa.string(), nullable=False) for name in _IDENTITY]
    settings = [pa.field(key, _KNOB_TYPES[knob.kind]) for key, knob in knobs().items()]
    columns = [*identity, *settings, pa.field("config", pa.string()), *_run_fields()]
    return pa.schema(columns, metadata=_METADATA)


def _run_fields() -> Iterator[pa.Field]:
    for column in fields(TrialRow):
        if column.name == "versions":
            yield from (pa.field(name, pa.string()) for name in _VERSIONS)
        elif column.name == "objectives":
            for number in range(1, MAX_OBJECTIVES + 1):
                name, value = objective_columns(number)
                yield pa.field(value, pa.float64())
                yield pa.field(name, pa.string())
        elif column.name in _COLUMNS:
            yield pa.field(column.name, _COLUMNS[column.name])


SCORES = pa.schema(
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("suite", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("subset", pa.string()),  # null stands for the whole task
        pa.field("split", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        # This is all, mean or wmean; null if the task has no subsets.
        pa.field("aggregation", pa.string()),
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("classifier_seed", pa.int64()),
        pa.field("data", pa.string(), nullable=False),  # toy or root
        # Times 100, as papers print scores; null if scoring failed.
        pa.field("value", pa.float64()),
        pa.field("n", pa.int64()),
        pa.field("reason", pa.string()),  # says why `value` is null
        pa.field("version", pa.string()),  # identifies the data of a task whose name does not
    ],
    metadata=_METADATA,
)
"""The schema of `scores`: one row per score."""

CURVES = pa.schema(
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("epoch", pa.float64()),
        pa.field("samples", pa.int64()),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
    ],
    metadata=_METADATA,
)
"""The schema of `curves`: one row per point."""


def schema_of(folder: str) -> pa.Schema:
    """The schema of a table by the name of its folder."""
    return trials_schema() if folder == "trials" else {"scores": SCORES, "curves": CURVES}[folder]


def _encodable(value: Any) -> Any:
    """A value that can be encoded as UTF-8, which paths and system errors may not be."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def stored_run_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `RUN_COLUMNS` of a stored row, if present, to keyword arguments of `TrialRow`."""
    run_columns = {n: row[n] for n in RUN_COLUMNS if n in row and not n.startswith("version_")}
    versions = {name: row.get(f"version_{name}") for name in LIBRARIES}
    return {**run_columns, "versions": {n: version for n, version in versions.items() if version}}


def trials_table(rows: Sequence[TrialRow]) -> pa.Table:
    """Make a table of schema `trials_schema()` from rows."""
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
    """A table from records whose attributes are the columns after `trial_id`."""
    columns = [[trial_id] * len(records)]
    columns += [[getattr(record, f.name) for record in records] for f in list(schema)[1:]]
    return pa.table(columns, schema=schema)


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    # The rows become one array of structs first, because converting column by column takes three
    # times as long.
    return pa.Table.from_arrays(pa.array(rows, pa.struct(schema)).flatten(), schema=schema)


def _knob_values(config: Mapping[str, Any]) -> dict[str, Any]:
    all_knobs = knobs()
    # A count can be a number or "all", so its column holds texts.
    return {
        key: str(value) if all_knobs[key].kind == "str" and value is not None else value
        for key, value in flatten(config)
    }


def with_search_origins(trials: pa.Table, origins: Mapping[str, str]) -> pa.Table:
    """Replace the origin `confirm` of trials that also took part in a choice.

    Args:
        trials: The table.
        origins: By trial, its origin in the search.
    """
    columns = (trials[name].to_pylist() for name in ("trial_id", "origin"))
    values = [
        origins.get(name, origin) if origin == CONFIRM_ORIGIN else origin
        for name, origin in zip(*columns, strict=True)
    ]
    column = trials.column_names.index("origin")
    return trials.set_column(column, trials.schema.field("origin"), pa.array(values, pa.string()))
