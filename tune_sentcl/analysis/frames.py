"""A study's three tables as pandas frames."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from tune_sentcl.store.study import Study

# Whole numbers and flags stay what they are beside nulls; numpy would make them floats.
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True)
class StudyFrames:
    """What a study holds. Numbers of scores are times 100, as papers print.

    Attributes:
        trials: One row a trial that has ended: `trial_id`, `configuration` (the same for all
            seeds), `space`, `origin` (grid | sampler | single | confirm), `status` (finished |
            pruned | failed), one column a knob under its dotted key (`method.lambda`, `seed`; null
            where the method has no such knob), `config` (all of them as JSON), `steps`,
            `started_at` (UTC), `wall_seconds` and its parts, `gpu_seconds`, `peak_memory_bytes`,
            `device`, `host`, `cpus`, `gpus`, `data_source`, `data_fingerprint`,
            `checkpoint_fingerprint`, `git_commit`, `version_...` (one a library), `objective` and
            `objective_name` (of several objectives also `objective_2` and so on), `error_type`,
            `error_text`, `attempt`.
        scores: One row a number: `trial_id`, `suite`, `task`, `subset` (null: the whole task),
            `split`, `metric`, `aggregation` (null where there are no subsets), `protocol`,
            `classifier_seed`, `data` (toy | root), `value` (null where it could
            not be taken), `n` (rows scored), `reason` (why not).
        curves: One row a point: `trial_id`, `step`, `epoch`, `samples`, `metric`, `value`.
    """

    trials: pd.DataFrame
    scores: pd.DataFrame
    curves: pd.DataFrame


def read_study(path: str | Path) -> StudyFrames:
    """Read a study, running or finished; only trials that have ended are in it.

    Args:
        path: The study's folder or URL.

    Raises:
        StudyError: There is no study, a file is damaged, or the disk refused.
    """
    study = Study.read(path)
    return StudyFrames(
        trials=frame_of(study.trials()),
        scores=frame_of(study.scores()),
        curves=frame_of(study.curves()),
    )


def frame_of(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a frame."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame
