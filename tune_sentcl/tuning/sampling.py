"""Ranges of a space as Optuna distributions, the samplers by name, and what they are taught."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from tune_sentcl.errors import Fault
from tune_sentcl.space import Range, Space

SamplerName = Literal["tpe", "gp", "random", "grid"]


def build_sampler(name: SamplerName, seed: int, grid_points: int) -> BaseSampler:
    """Make a sampler.

    Args:
        name: `grid` samples nothing beyond the grid; it gets the random sampler, never asked.
        seed: Seed of its draws.
        grid_points: Configurations that it can learn from, of the grid and of other studies. One
            that learns draws at random until it has been told min(10, grid_points) values, so that
            the first sampled trial learns from the grid; with no such grid, Optuna's own 10. Of
            pruned trials TPE learns, the Gaussian process does not.
    """
    match name:
        case "tpe":
            with warnings.catch_warnings():
                # `group` is experimental; without it TPE models conditional knobs one by one.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return optuna.samplers.TPESampler(
                    seed=seed,
                    n_startup_trials=startup_trials(grid_points),
                    multivariate=True,
                    group=True,
                    constant_liar=True,
                )
        case "gp":
            return optuna.samplers.GPSampler(
                seed=seed,
                n_startup_trials=startup_trials(grid_points),
                warn_independent_sampling=False,  # it draws so before it has learned, as it must
            )
        case "random" | "grid":
            return optuna.samplers.RandomSampler(seed=seed)


def startup_trials(grid_points: int) -> int:
    """How many values a sampler must be told before it stops drawing at random."""
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
    """Draw one value for each range that the drawn method and optimizer have."""
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


def check_sampler(name: SamplerName, space: Space) -> Iterator[Fault]:
    """Say where a sampler cannot serve a space.

    The Gaussian process models only what every trial has, and would draw all other knobs blindly.
    """
    branches = [space.active_ranges(branch) for branch in space.branches()]
    conditional = [r.key for r in space.ranges if not all(r in b for b in branches)]
    if name == "gp" and conditional:
        knobs = ", ".join(conditional)
        rule = f"models only knobs that every trial has, and {knobs} depend on what else is drawn"
        yield Fault("--sampler", "", name, rule, "Take --sampler tpe.")


def frozen_trial(
    space: Space,
    params: Mapping[str, Any],
    state: TrialState,
    values: Sequence[float] | None,
    intermediate_values: Mapping[int, float],
    user_attrs: Mapping[str, Any],
) -> FrozenTrial | None:
    """An ended trial, run here or elsewhere, as one from which the sampler learns.

    It carries the ranges of this space, wherever it was drawn: of trials whose ranges differ TPE
    takes the first one's, and the Gaussian process drops the knob altogether.

    Args:
        space: The ranges of now.
        params: The trial's knobs; those without a range here are left out.
        state: How it ended.
        values: One number an objective, where it is complete.
        intermediate_values: Where it was stopped: its scores by the rows it had seen; empty where
            there are several objectives.
        user_attrs: What to note beside it.

    Returns:
        None where a knob is missing or lies outside of its range: a trial that lacks a knob would
        make TPE model that knob apart from the others for good.
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
    """Add lessons of one space to a study; walks through all of it, so teach many at once.

    Optuna copies the ranges into every trial. They are the same wherever the knobs are, so they
    are shared again, which halves what a trial keeps.
    """
    study.add_trials(trials)
    shared: dict[tuple[str, ...], dict[str, BaseDistribution]] = {}
    for trial in study.get_trials(deepcopy=False):
        trial.distributions = shared.setdefault(tuple(trial.distributions), trial.distributions)


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
    def num_with_value(self) -> int:
        """How many configurations the sampler has a value of only by these."""
        failed = 0 if self._worst is None else len(self._failed)
        return failed + sum(trial.state.is_finished() for trial in self._others.values())

    def add(self, name: str, trial: FrozenTrial) -> None:
        """Let a trial stand for a configuration until `drop`; its values stay as they are."""
        self._others[name] = self._added(trial)

    def fail(self, name: str, trial: FrozenTrial) -> None:
        """Let a trial stand for a failed configuration until `drop`; its value is the worst."""
        self._failed[name] = trial
        if self._worst is not None:
            trial.values = self._worst
            self._failed[name] = self._added(trial)

    def drop(self, name: str) -> None:
        """The sampler no longer sees the placeholder of a configuration, if there is one."""
        for trials in (self._failed, self._others):
            if name in trials:
                trials.pop(name).state = TrialState.FAIL

    def update_worst(self, reported: Iterable[FrozenTrial]) -> None:
        """Note the values that the sampler was told, to know the worst one of each objective."""
        values = [trial.values for trial in reported if trial.state == TrialState.COMPLETE]
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
