"""The state of a study's trials, read once and updated as trials end.

The session, the plan and the result tables get the state of trials from `History` only. No other
module derives that state from the rows of a study.
"""

from tune_sentcl.history.configuration import (
    Configuration,
    RankKey,
    constant_score,
    order_keys,
    rank_keys,
    ranked,
)
from tune_sentcl.history.history import History
from tune_sentcl.history.trial_records import (
    WHOLE_TASKS,
    Action,
    Assignment,
    LostReason,
    Origin,
    Result,
    Status,
    evaluation_data_of_rows,
)
from tune_sentcl.store.rows import CONFIRM_ORIGIN

__all__ = [
    "CONFIRM_ORIGIN",
    "WHOLE_TASKS",
    "Action",
    "Assignment",
    "Configuration",
    "History",
    "LostReason",
    "Origin",
    "RankKey",
    "Result",
    "Status",
    "constant_score",
    "evaluation_data_of_rows",
    "order_keys",
    "rank_keys",
    "ranked",
]
