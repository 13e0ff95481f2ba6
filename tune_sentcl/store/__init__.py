"""A study's files: Parquet tables with a versioned schema, checkpoints and a manifest."""

from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.rows import CurvePoint, TrialRow, stored_run_columns
from tune_sentcl.store.study import Study
from tune_sentcl.store.trial_folders import TrialFiles

__all__ = [
    "CurvePoint",
    "SearchRecord",
    "Study",
    "StudyDriver",
    "TrialFiles",
    "TrialRow",
    "stored_run_columns",
]
