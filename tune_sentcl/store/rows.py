"""What callers hand in: one dataclass a kind of row, and its Arrow table."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from tune_sentcl.config import TrialConfig, knobs
from tune_sentcl.store.provenance import library_versions
from tune_sentcl.store.schema import CURVES, SCORES, TRIALS


@dataclass(frozen=True)
class Score:
    """One number that a trial's encoder was given.

    Attributes:
        suite: The set of tasks: `sts`, `transfer`.
        task: As papers write it: `STS12`, `STS-B`, `SICK-R`, `MR`.
        split: `train`, `dev` or `test`; means over folds are `test`.
        metric: Lower case: `spearman`, `pearson`, `accuracy`, `f1`.
        protocol: How it was measured: `cosine`, `relatedness`, or a transfer protocol's name.
        data: Whether the toy sets or the files under the data root were scored.
        value: Times 100, as papers print.
        n: Rows scored.
        subset: A part of the task; None for the whole.
        aggregation: How subsets were joined: `all`, `mean`, `wmean`; None where there are none.
        classifier_seed: Seed of a protocol's classifier; None where it has none.
    """

    suite: str
    task: str
    split: Literal["train", "dev", "test"]
    metric: str
    protocol: str
    data: Literal["toy", "root"]
    value: float
    n: int
    _: KW_ONLY
    subset: str | None = None
    aggregation: Literal["all", "mean", "wmean"] | None = None
    classifier_seed: int | None = None


@dataclass(frozen=True)
class CurvePoint:
    """One point of a curve over training.

    Attributes:
        step: Optimizer steps done.
        epoch: Passes done, with the fraction of the one under way.
        samples: Rows seen.
        metric: What `value` is: `loss`, `lr`, a dev score.
        value: In the metric's own unit; scores times 100.
    """

    step: int
    epoch: float
    samples: int
    metric: str
    value: float


@dataclass(frozen=True)
class TrialRow:
    """How one trial ended. The knob columns and the JSON are read off `config`.

    Attributes:
        config: The trial's config, seed included.
        trial_id: See `tune_sentcl.config.trial_id`.
        configuration: See `tune_sentcl.config.configuration_id`.
        space: The name of the study's space.
        origin: Who asked for it.
        status: How it ended.
        steps: Optimizer steps done.
        started_at: When it began; with a time zone.
        wall_seconds: From start to end.
        train_seconds: Of `wall_seconds`, training.
        evaluation_seconds: Of `wall_seconds`, evaluation.
        gpu_seconds: `wall_seconds` times the share of accelerators held.
        encoded_sentences: Sentences that a frozen encoder ran on; 0 where all were cached, None
            where the encoder is trained.
        encoding_seconds: Of `wall_seconds`, that pass, or the wait for another trial's.
        peak_memory_bytes: Peak of the accelerator's memory, or of the process without one.
        device: Name of the accelerator, or `cpu`.
        host: Name of the machine.
        cpus: Cores held.
        gpus: Accelerators held; a fraction where one is shared.
        data_source: Where the rows came from, as found.
        data_fingerprint: See `tune_sentcl.config.Fingerprints`.
        checkpoint_fingerprint: See `tune_sentcl.config.Fingerprints`.
        git_commit: See `tune_sentcl.store.provenance.git_commit`.
        versions: Versions by library, of the process that makes the row unless given.
        objective: The first objective's value times 100.
        objective_name: Which score that is, as TASK:METRIC:SPLIT.
        error_type: The class of what made it fail.
        error_text: Its message.
        notes: What was mended on the way, for people.
        attempt: 1 for the first run, one more for each repetition.
    """

    config: TrialConfig
    _: KW_ONLY
    trial_id: str
    configuration: str
    space: str
    origin: Literal["grid", "sampler", "single"]
    status: Literal["finished", "pruned", "failed"]
    steps: int | None = None
    started_at: datetime | None = None
    wall_seconds: float | None = None
    train_seconds: float | None = None
    evaluation_seconds: float | None = None
    gpu_seconds: float | None = None
    encoded_sentences: int | None = None
    encoding_seconds: float | None = None
    peak_memory_bytes: int | None = None
    device: str | None = None
    host: str | None = None
    cpus: int | None = None
    gpus: float | None = None
    data_source: str | None = None
    data_fingerprint: str | None = None
    checkpoint_fingerprint: str | None = None
    git_commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=library_versions)
    objective: float | None = None
    objective_name: str | None = None
    error_type: str | None = None
    error_text: str | None = None
    notes: str | None = None
    attempt: int = 1

    def __post_init__(self) -> None:
        if self.started_at is not None and self.started_at.tzinfo is None:
            raise ValueError("started_at must have a time zone: datetime.now(UTC)")

    def values(self) -> dict[str, Any]:
        """The row by column name."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        del facts["config"], facts["versions"]
        return {
            **facts,
            **_knob_values(self.config),
            "config": self.config.model_dump_json(by_alias=True),
            **{f"version_{name}": version for name, version in self.versions.items()},
        }


def trials_table(rows: Sequence[TrialRow]) -> pa.Table:
    """The rows under `TRIALS`; no type is inferred."""
    return pa.Table.from_pylist([row.values() for row in rows], schema=TRIALS)


def scores_table(trial_id: str, scores: Sequence[Score]) -> pa.Table:
    """One trial's scores under `SCORES`; no type is inferred."""
    rows = [{"trial_id": trial_id, **asdict(score)} for score in scores]
    return pa.Table.from_pylist(rows, schema=SCORES)


def curves_table(trial_id: str, points: Sequence[CurvePoint]) -> pa.Table:
    """One trial's curves under `CURVES`; no type is inferred."""
    rows = [{"trial_id": trial_id, **asdict(point)} for point in points]
    return pa.Table.from_pylist(rows, schema=CURVES)


def _knob_values(config: TrialConfig) -> dict[str, Any]:
    known = knobs()
    values = config.dotted()
    # A count is a number or "all"; its column is text.
    return {
        key: str(value) if known[key].kind == "str" and value is not None else value
        for key, value in values.items()
    }
