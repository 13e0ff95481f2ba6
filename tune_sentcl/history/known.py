"""What can be known of a trial, and what there can be to do for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tune_sentcl.config import Fingerprints, TrialConfig
from tune_sentcl.score import Measurement

NOTHING: Mapping[Measurement, str] = {}

Status = Literal["finished", "pruned", "failed"]
Loss = Literal["pruned", "failed"]
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
class Asked:
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
class Stored:
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
class Known:
    """What is known of one trial; sets are shared among trials that hold the same."""

    status: Status
    attempt: int
    held: frozenset[Measurement] = frozenset()
    failed: Mapping[Measurement, str] = field(default_factory=lambda: NOTHING)
    numbers: dict[tuple[str, int, int | None], float] = field(default_factory=dict)
    stopped: tuple[int, float] | None = None
    error_type: str | None = None
    data: str = "root"
