"""Optuna samplers and distributions for a space's ranges, and the trials that a sampler sees."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.space import Range, Space

SamplerName = Literal["tpe", "random", "grid"]


def build_sampler(name: SamplerName, seed: int, grid_points: int) -> BaseSampler:
    """Make a sampler that learns from `grid_points` configurations of the grid and other studies.

    TPE draws at random until it has min(10, grid_points) trials, so that the first sampled one
    learns from the grid; without grid points, until Optuna's default of 10. `grid` samples
    nothing: its random sampler is never asked.
    """
    match name:
        case "tpe":
            with warnings.catch_warnings():
                # `group` is experimental. Without it TPE models conditional knobs independently.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return optuna.samplers.TPESampler(
                    seed=seed,
                    n_startup_trials=startup_trials(grid_points),
                    multivariate=True,
                    group=True,
                    constant_liar=True,
                )
        case "random" | "grid":
            return optuna.samplers.RandomSampler(seed=seed)


def startup_trials(grid_points: int) -> int:
    """Trials that TPE needs before it stops drawing at random."""
    return min(10, grid_points) or 10


def distribution(item: Range) -> BaseDistribution:
    """The Optuna distribution of a range."""
    match item.kind:
        case "choice":
            return CategoricalDistribution(item.choices)
        case "int":
            return IntDistribution(int(item.low), int(item.high), log=item.log)
        case "float":
            return FloatDistribution(item.low, item.high, log=item.log)


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Any]:
    """Draw one value for each range that is active for the drawn method and optimizer."""
    values: dict[str, Any] = {}
    for item in space.ranges:
        if item in space.active_ranges(values):
            values[item.key] = _suggest_one(trial, item)
    return values


def _suggest_one(trial: optuna.Trial, item: Range) -> Any:
    match item.kind:
        case "choice":
            return trial.suggest_categorical(item.key, item.choices)
        case "int":
            return trial.suggest_int(item.key, int(item.low), int(item.high), log=item.log)
        case "float":
            return trial.suggest_float(item.key, item.low, item.high, log=item.log)


def frozen_trial(
    space: Space,
    params: Mapping[str, Any],
    state: TrialState,
    values: Sequence[float] | None,
    intermediate_values: Mapping[int, float],
    user_attrs: Mapping[str, Any],
) -> FrozenTrial | None:
    """Make an ended trial for the sampler; None if a knob is missing or outside its range.

    TPE would model a knob that some trials lack apart from the others. The trial gets the present
    ranges as distributions, wherever it was drawn: where these differ between trials, TPE takes
    the first trial's. `intermediate_values` are scores by rows seen; they must be empty with
    several objectives.
    """
    active = space.active_ranges(params)
    if not all(item.key in params and item.holds(params[item.key]) for item in active):
        return None
    return optuna.trial.create_trial(
        state=state,
        values=values,
        params={item.key: params[item.key] for item in active},
        distributions={item.key: distribution(item) for item in active},
        intermediate_values=dict(intermediate_values),
        user_attrs=dict(user_attrs),
    )


def add_trials(study: optuna.Study, trials: Iterable[FrozenTrial]) -> None:
    """Add trials of one space to a study; call it once for many, for it walks through all trials.

    Optuna copies the distributions into every trial. Trials with the same knobs share them again
    here, which halves the memory of a trial.
    """
    study.add_trials(trials)
    shared: dict[tuple[str, ...], dict[str, BaseDistribution]] = {}
    for trial in study.get_trials(deepcopy=False):
        trial.distributions = shared.setdefault(tuple(trial.distributions), trial.distributions)


class Placeholders:
    """Trials that a sampler sees for configurations without a value of their own.

    A configuration that failed through its own settings has, in each objective, a value just below
    the worst value reported so far and those of past trials. When one of these changes, the values
    of all failed configurations move with it. So the order of the ends does not matter, and a
    sampler that is rebuilt from the study holds the same values as one that lived on. Before the
    first value there is no worst one, and the sampler sees no failed configuration.

    A grid point that runs has the state RUNNING. TPE's constant liar then avoids its neighborhood.
    """

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self._worst: list[float] | None = None
        self._worst_reported: list[float] | None = None
        self._worst_past: list[float] | None = None
        self._failed: dict[str, FrozenTrial] = {}
        self._others: dict[str, FrozenTrial] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._failed or name in self._others

    @property
    def num_with_value(self) -> int:
        """Configurations of which the sampler has a value through a placeholder only."""
        failed = 0 if self._worst is None else len(self._failed)
        return failed + sum(trial.state.is_finished() for trial in self._others.values())

    def add(self, name: str, trial: FrozenTrial) -> None:
        """Let a trial with fixed values stand for a configuration until `drop`."""
        self._others[name] = self._added(trial)

    def fail(self, name: str, trial: FrozenTrial) -> None:
        """Let a trial with the worst value stand for a failed configuration until `drop`."""
        self._failed[name] = trial
        if self._worst is not None:
            trial.values = self._worst
            self._failed[name] = self._added(trial)

    def drop(self, name: str) -> None:
        """Remove the placeholder of a configuration, if it has one."""
        for trials in (self._failed, self._others):
            if name in trials:
                trials.pop(name).state = TrialState.FAIL

    def update_worst(self, reported: Iterable[FrozenTrial]) -> None:
        """Update the worst value of each objective from trials that the sampler has seen."""
        values = [trial.values for trial in reported if trial.state == TrialState.COMPLETE]
        if values:
            known = values if self._worst_reported is None else [*values, self._worst_reported]
            self._worst_reported = _lowest(known)
            self._move()

    def update_past(self, values: Sequence[Sequence[float]]) -> None:
        """Take the present values of past trials in place of their earlier ones."""
        self._worst_past = _lowest(values) if values else None
        self._move()

    def _move(self) -> None:
        """Give failed configurations a value below the worst one."""
        known = [v for v in (self._worst_reported, self._worst_past) if v is not None]
        before = self._worst
        if not known:
            return
        self._worst = [math.nextafter(value, -math.inf) for value in _lowest(known)]
        if self._worst == before:
            return
        for name, trial in self._failed.items():
            trial.values = self._worst
            if before is None:
                self._failed[name] = self._added(trial)

    def _added(self, trial: FrozenTrial) -> FrozenTrial:
        """Add a trial to the study and return Optuna's copy of it."""
        self._study.add_trial(trial)
        return self._study.get_trials(deepcopy=False)[-1]


def _lowest(values: Iterable[Sequence[float]]) -> list[float]:
    return [min(column) for column in zip(*values, strict=True)]
