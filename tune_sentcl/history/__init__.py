"""Everything that a study knows of its trials: read once, kept true as trials end.

Whoever asks what became of a trial asks here: the driver on resume and after each end, the plan,
and the tables for people. Nothing else works such things out from a study's rows.
"""

from tune_sentcl.history.history import History
from tune_sentcl.history.ranking import constant, judged_data, rank_key
from tune_sentcl.history.trial_records import (
    OF_TASKS,
    Action,
    Asked,
    Assignment,
    Loss,
    Origin,
    Result,
    Status,
    Stored,
    data_of,
)
from tune_sentcl.store.rows import FRESH

__all__ = [
    "FRESH",
    "OF_TASKS",
    "Action",
    "Asked",
    "Assignment",
    "History",
    "Loss",
    "Origin",
    "Result",
    "Status",
    "Stored",
    "constant",
    "data_of",
    "judged_data",
    "rank_key",
]
