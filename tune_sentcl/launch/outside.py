"""Configurations that no range holds, as optuna-dashboard can show them; no sampler sees these."""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import TrialConfig, varied
from tune_sentcl.space import Space
from tune_sentcl.store.provenance import mask_text


class Outside:
    """A grid's own axes: the knobs in which its points differ, from the lowest to the highest."""

    def __init__(self, space: Space) -> None:
        """Look at the grid of a space."""
        points = [config.dotted() for config in space.configurations]
        self._axes: dict[str, BaseDistribution] = {}
        for key in varied(points):
            values = [point[key] for point in points if point.get(key) is not None]
            if key != "seed" and len(set(map(str, values))) > 1:
                self._axes[key] = _axis(values)

    def trial(
        self,
        config: TrialConfig,
        state: TrialState,
        values: Sequence[float] | None,
        curve: Mapping[int, float],
        user_attrs: Mapping[str, Any],
    ) -> FrozenTrial:
        """A configuration of the grid as a trial of Optuna's; see `sampling.lesson`."""
        point = config.dotted()
        params = {key: _plain(point[key]) for key in self._axes if point.get(key) is not None}
        return optuna.trial.create_trial(
            state=state,
            values=values,
            params=params,
            distributions={key: self._axes[key] for key in params},
            intermediate_values=dict(curve),
            user_attrs=dict(user_attrs),
        )


def _axis(values: Sequence[Any]) -> BaseDistribution:
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return IntDistribution(min(values), max(values))
    if kinds <= {int, float}:
        return FloatDistribution(min(values), max(values))
    return CategoricalDistribution(list(dict.fromkeys(map(_plain, values))))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool) else mask_text(str(value))
