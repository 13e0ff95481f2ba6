"""The trials that ran when their driver ended: of a sampled one only its state knows."""

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import History
from tune_sentcl.store.study import Study
from tune_sentcl.trial.state import config_of


def cut_off(study: Study, history: History) -> dict[str, TrialConfig]:
    """What the trials are that have a state to go on from and no row, by their names.

    Raises:
        StudyError: The disk refused.
    """
    names = sorted(name for name in study.states() if name not in history)
    found = {name: config_of(study, name) for name in names}
    return {name: config for name, config in found.items() if config is not None}
