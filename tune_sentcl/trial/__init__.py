"""A trial: from a frozen config to scores and a row of the study."""

from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.inputs import InputLoader, TrialInputs
from tune_sentcl.trial.output import Output
from tune_sentcl.trial.run import FinishedTrial, assemble, measure, run, torch_threads
from tune_sentcl.trial.running import Progress

__all__ = [
    "Account",
    "FinishedTrial",
    "InputLoader",
    "Output",
    "Progress",
    "TrialInputs",
    "assemble",
    "measure",
    "run",
    "torch_threads",
]
