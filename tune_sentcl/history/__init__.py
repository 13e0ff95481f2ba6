"""Everything that a study knows of its trials: read once, kept true as trials end.

Whoever asks what became of a trial asks here: the driver on resume and after each end, the plan,
and the tables for people. Nothing else works such things out from a study's rows.
"""

from tune_sentcl.history.history import History
from tune_sentcl.history.ranking import constant_score, rank_key, ranked_data
from tune_sentcl.history.trial_records import (
    WHOLE_TASKS,
    Action,
    Assignment,
    LostReason,
    Origin,
    RequestedScores,
    Result,
    Status,
    StoredConfiguration,
    evaluation_data_of_rows,
)
from tune_sentcl.store.rows import CONFIRM_ORIGIN

__all__ = [
    "CONFIRM_ORIGIN",
    "WHOLE_TASKS",
    "Action",
    "Assignment",
    "History",
    "LostReason",
    "Origin",
    "RequestedScores",
    "Result",
    "Status",
    "StoredConfiguration",
    "constant_score",
    "evaluation_data_of_rows",
    "rank_key",
    "ranked_data",
]
