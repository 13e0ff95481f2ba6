"""The scale of values that a search takes from other studies."""

import itertools
import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import optuna
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.tuning.sampler.sampling import Placeholders, add_trials

K = TypeVar("K", bound=Hashable)

WORST = -1.0
"""The lowest standardized value."""


def scale(values: Collection[float]) -> tuple[float, float]:
    """The center and the unit of the values of one study; -inf stands for one without a score.

    The center is the median, or the worst finite value if that is higher: a search that stops most
    configurations early has scores of the best ones only. The unit reaches to the best value.
    """
    finite = [value for value in values if value > -math.inf]
    if not finite:
        return 0.0, 1.0
    center = max(statistics.median(values), min(finite))
    return center, max(finite) - center or 1.0


def standardized(values: Mapping[K, float]) -> dict[K, float]:
    """Map the values of one study so that its `scale` has the center 0 and the unit 1.

    Values below -1 become -1, so that a diverged trial does not set the scale.
    """
    center, unit = scale(values.values())
    return {key: max(WORST, (value - center) / unit) for key, value in values.items()}


PAST_NAME = "past_configuration"
"""The user attribute of a past trial that names its configuration in its own study."""

_MIN_FOR_SCALE = 3
_MOST = 200  # past trials of which a sampler is told; the time of a draw grows with them


def thinned(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Keep past trials evenly by rank of the first objective, the best one among them."""
    ordered = sorted(
        trials, key=lambda t: (t.values is None, -(t.values or [0.0])[0], t.user_attrs[PAST_NAME])
    )
    return ordered[:: max(1, math.ceil(len(ordered) / _MOST))]


class PastTrials:
    """Trials of other studies that a sampler sees, on the scale of this study.

    Their values are standardized: 0 is the center of their own study and 1 its best value
    (`scale`). The sampler sees the center of this study in place of 0. It sees the best
    value in place of 1 if three or more configurations have one; else a unit stays a unit.

    Law: the values depend on the values of this study alone, and not on their order. So a sampler
    that is rebuilt from the study holds the same values as one that lived on.
    """

    def __init__(self, study: optuna.Study, placeholders: Placeholders) -> None:
        self._study, self._placeholders = study, placeholders
        self._trials: dict[str, list[tuple[FrozenTrial, list[float]]]] = {}

    def add(self, trials: Sequence[FrozenTrial]) -> None:
        """Add trials with standardized values; `rescale` then moves them."""
        known = len(self._study.get_trials(deepcopy=False))
        add_trials(self._study, trials)
        for trial in self._study.get_trials(deepcopy=False)[known:]:
            held = self._trials.setdefault(trial.user_attrs[PAST_NAME], [])
            held.append((trial, trial.values or []))

    def drop(self, name: str) -> None:
        """Remove the trials of a configuration that this study holds from now on."""
        for trial, _ in self._trials.pop(name, ()):
            trial.state = TrialState.FAIL

    def rescale(self, own: Iterable[FrozenTrial]) -> None:
        """Move the values of past trials to the scale of all trials of this study that ended."""
        if not self._trials:
            self._placeholders.update_past([])
            return
        numbers = range(len(self._study.directions))
        none = [-math.inf for _ in numbers]
        told = [trial for trial in own if trial.state != TrialState.FAIL]
        values = [t.values if t.state == TrialState.COMPLETE else none for t in told]
        units = [_center_and_unit([one[n] for one in values]) for n in numbers]
        found = []
        for trial, standard in itertools.chain.from_iterable(self._trials.values()):
            if standard:
                pairs = zip(standard, units, strict=True)
                trial.values = [center + unit * value for value, (center, unit) in pairs]
                found.append(trial.values)
        self._placeholders.update_past(found)


def _center_and_unit(values: Sequence[float]) -> tuple[float, float]:
    center, unit = scale(values)
    return center, unit if sum(map(math.isfinite, values)) >= _MIN_FOR_SCALE else 1.0
