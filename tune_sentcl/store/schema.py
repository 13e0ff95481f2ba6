"""The columns of a study's tables, as explicit Arrow schemas.

Adding a column keeps `SCHEMA_VERSION`. Removing one or changing its meaning needs a new version.
Studies of other versions are refused. The knob columns of the trials come from the registered
methods, so a new knob becomes a nullable column without a change here.
"""

from collections.abc import Iterator

import pyarrow as pa

from tune_sentcl.config import cached, knobs
from tune_sentcl.objective import MAX_OBJECTIVES, objective_columns

SCHEMA_VERSION = 1
"""The schema number in `study.json` and in every Parquet file."""

LIBRARIES = ("tune_sentcl", "python", "torch", "transformers", "ray", "optuna")
"""The packages with a column `version_...`."""

STAGE = {"objective": pa.string(), "share": pa.float64(), "value": pa.float64()}
"""The score of a trial at the end of a stage of a search."""

_METADATA = {"tune_sentcl.schema": str(SCHEMA_VERSION)}
_KINDS = {
    "float": pa.float64(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    "str": pa.string(),
    "list": pa.list_(pa.string()),
    "ints": pa.list_(pa.int64()),
}


def _objectives() -> Iterator[pa.Field]:
    for number in range(1, MAX_OBJECTIVES + 1):
        name, value = objective_columns(number)
        yield pa.field(value, pa.float64())  # x 100
        yield pa.field(name, pa.string())  # TASK:METRIC:SPLIT


@cached
def trials_schema() -> pa.Schema:
    """One row per trial."""
    identity = [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("configuration", pa.string(), nullable=False),  # the id without the seed
        pa.field("space", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),  # grid | sampler | single | confirm
        pa.field("status", pa.string(), nullable=False),  # finished | pruned | failed
    ]
    settings = [pa.field(key, _KINDS[knob.kind]) for key, knob in knobs().items()]
    run_columns = [
        pa.field("config", pa.string()),  # the config as JSON
        pa.field("steps", pa.int64()),
        # Scores at the ends of stages: the objective, the share of a whole training, times 100.
        pa.field("stages", pa.list_(pa.struct(STAGE))),
        pa.field("started_at", pa.timestamp("ms", tz="UTC")),
        pa.field("wall_seconds", pa.float64()),
        pa.field("startup_seconds", pa.float64()),  # null: included in train_seconds
        pa.field("train_seconds", pa.float64()),
        pa.field("evaluation_seconds", pa.float64()),
        pa.field("gpu_seconds", pa.float64()),
        pa.field("saving_seconds", pa.float64()),  # writing states to resume from
        pa.field("encoded_sentences", pa.int64()),  # by this trial; null: no frozen encoder
        pa.field("encoding_seconds", pa.float64()),
        pa.field("peak_memory_bytes", pa.int64()),
        pa.field("device", pa.string()),
        pa.field("precision_used", pa.string()),  # fp32 | tf32 | bf16; null: no step was taken
        pa.field("host", pa.string()),
        pa.field("cpus", pa.int64()),
        pa.field("gpus", pa.float64()),
        pa.field("data_source", pa.string()),
        pa.field("data_fingerprint", pa.string()),
        pa.field("checkpoint_fingerprint", pa.string()),
        pa.field("selection_fingerprint", pa.string()),  # null: the last step's weights are kept
        pa.field("code_fingerprint", pa.string()),  # of the plugin; null: a built-in method
        pa.field("git_commit", pa.string()),
        *(pa.field(f"version_{name}", pa.string()) for name in LIBRARIES),
        *_objectives(),
        pa.field("error_type", pa.string()),
        pa.field("error_text", pa.string()),
        pa.field("notes", pa.string()),  # automatic corrections during the run, as text
        pa.field("attempt", pa.int64()),
        pa.field("attempt_files", pa.string()),  # EPOCH-TRY: label of its scores and curves files
    ]
    return pa.schema([*identity, *settings, *run_columns], metadata=_METADATA)


SCORES = pa.schema(
    [
        pa.field("trial_id", pa.string(), nullable=False),
        pa.field("suite", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("subset", pa.string()),  # null: the whole task
        pa.field("split", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("aggregation", pa.string()),  # all | mean | wmean; null without subsets
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("classifier_seed", pa.int64()),
        pa.field("data", pa.string(), nullable=False),  # toy | root
        pa.field("value", pa.float64()),  # x 100, as papers print; null if scoring failed
        pa.field("n", pa.int64()),
        pa.field("reason", pa.string()),  # why `value` is null
        pa.field("version", pa.string()),  # of the task, where its name does not determine it
    ],
    metadata=_METADATA,
)
"""One row per score."""

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
"""One row per point of a curve."""

TABLES = ("trials", "scores", "curves")
"""The folders of the tables."""


def schema_of(folder: str) -> pa.Schema:
    """The schema of a table by the name of its folder."""
    return trials_schema() if folder == "trials" else {"scores": SCORES, "curves": CURVES}[folder]
