"""Whose evaluation sets a trial is measured on."""

from typing import Literal

from tune_sentcl.config.mixes import is_toy
from tune_sentcl.config.tables import Values
from tune_sentcl.config.trial import TrialConfig

DataName = Literal["toy", "root"]
"""The toy sets, or the files under the data root."""


def evaluation_data(config: TrialConfig) -> DataName:
    """Whose evaluation sets a config means; `auto` is toy for trials trained on toy."""
    return _meant(config.evaluation.data, config.data.source)


def evaluation_data_of(values: Values) -> DataName:
    """The same, from the dotted values of a whole config."""
    return _meant(values["evaluation.data"], values["data.source"])


def _meant(data: Literal["auto", "toy", "root"], source: str) -> DataName:
    if data == "auto":
        return "toy" if is_toy(source) else "root"
    return data
