"""Optuna trials for configurations that Optuna itself did not run: running ones, failed ones.

Optuna's study lies in memory, where a trial can still be changed after it was added.
"""

import math
from collections.abc import Iterable

import optuna
from optuna.trial import FrozenTrial, TrialState


class Placeholders:
    """The trials that a sampler sees for configurations without a value of their own.

    A configuration that failed through its own settings has a value just below the worst value
    told so far, in each objective. When a worse value comes, the value of every failed
    configuration moves with it. So the order of the ends does not matter, and a sampler that is
    rebuilt from the study holds the same values as one that lived on. Before the first value
    there is no worst one, and the sampler sees no failed configuration.

    A grid point that runs has the state RUNNING. TPE's constant liar and the Gaussian process
    then keep away from it.
    """

    def __init__(self, study: optuna.Study) -> None:
        """No configuration has a placeholder yet."""
        self._study = study
        self._worst: list[float] | None = None
        self._failed: dict[str, FrozenTrial] = {}
        self._others: dict[str, FrozenTrial] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._failed or name in self._others

    @property
    def told(self) -> int:
        """How many configurations the sampler has a value of only by these."""
        failed = 0 if self._worst is None else len(self._failed)
        return failed + sum(trial.state.is_finished() for trial in self._others.values())

    def add(self, name: str, trial: FrozenTrial) -> None:
        """Let a trial stand for a configuration until `drop`; its values stay as they are."""
        self._others[name] = self._added(trial)

    def fail(self, name: str, trial: FrozenTrial) -> None:
        """Let a trial stand for a failed configuration until `drop`; its value follows `see`."""
        self._failed[name] = trial
        if self._worst is not None:
            trial.values = self._worst
            self._failed[name] = self._added(trial)

    def drop(self, name: str) -> None:
        """The sampler no longer sees the placeholder of a configuration, if there is one."""
        for trials in (self._failed, self._others):
            if name in trials:
                trials.pop(name).state = TrialState.FAIL

    def see(self, told: Iterable[FrozenTrial]) -> None:
        """Note the values that the sampler was told, to know the worst one of each objective."""
        values = [trial.values for trial in told if trial.state == TrialState.COMPLETE]
        if not values:
            return
        before = self._worst
        below = [math.nextafter(min(column), -math.inf) for column in zip(*values, strict=True)]
        self._worst = below if before is None else list(map(min, before, below))
        if self._worst == before:
            return
        for name, trial in self._failed.items():
            trial.values = self._worst
            if before is None:
                self._failed[name] = self._added(trial)

    def _added(self, trial: FrozenTrial) -> FrozenTrial:
        """The trial that Optuna keeps, which is a copy."""
        self._study.add_trial(trial)
        return self._study.get_trials(deepcopy=False)[-1]
