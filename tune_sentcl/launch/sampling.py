"""Ranges of a space as Optuna distributions, and the samplers by name."""

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler

from tune_sentcl.space import Range, Space

SamplerName = Literal["tpe", "random", "grid", "nsga2"]


def build_sampler(name: SamplerName, seed: int, grid_points: int) -> BaseSampler:
    """Make a sampler.

    Args:
        name: `grid` samples nothing beyond the grid; it gets the random sampler, never asked.
        seed: Seed of its draws.
        grid_points: Configurations of the grid that it can learn from. TPE draws at random until
            it has been told min(10, grid_points) values, so that the first sampled trial learns
            from the grid; with no such grid, Optuna's own 10.
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
        case "nsga2":
            return optuna.samplers.NSGAIISampler(seed=seed)
        case "random" | "grid":
            return optuna.samplers.RandomSampler(seed=seed)


def startup_trials(grid_points: int) -> int:
    """How many values TPE must be told before it stops drawing at random."""
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


def distributions(space: Space, point: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """The distributions of a point's knobs."""
    return {item.key: distribution(item) for item in space.ranges if item.key in point}


def count_points(space: Space) -> float:
    """How many configurations the ranges hold; infinity where a range is continuous."""
    return sum(_count(space, branch) for branch in space.branches()) if space.ranges else 0


def _count(space: Space, branch: Mapping[str, Any]) -> float:
    sizes = {"choice": lambda r: len(r.choices), "int": lambda r: int(r.high) - int(r.low) + 1}
    return math.prod(
        sizes[item.kind](item) if item.kind in sizes else math.inf
        for item in space.active_ranges(branch)
        if item.key not in branch
    )
