"""Update rules and schedules against their formulas."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from tune_sentcl.config import OptimizerConfig
from tune_sentcl.train import build_optimizer, learning_rate_factor


def options(**values: Any) -> OptimizerConfig:
    return TypeAdapter(OptimizerConfig).validate_python(values)


def formula(schedule: str, climb: int, step: int, total: int) -> float:
    if step < climb:
        return step / climb
    if schedule == "constant":
        return 1.0
    left = (total - step) / (total - climb)
    return left if schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(
    ("warm", "total", "climb"),
    [
        *(({"warmup": w}, n, math.floor(w * n)) for w in (0.0, 0.1, 0.35) for n in (1, 7, 500)),
        # Four epochs of six steps; the share is not asked.
        *(({"warmup": 0.9, "warmup_epochs": e}, 24, round(6 * e)) for e in (0.0, 0.5, 2.0)),
    ],
)
def test_the_schedule_equals_its_formula_at_every_step(
    schedule: str, warm: dict[str, float], total: int, climb: int
) -> None:
    config = options(schedule=schedule, epochs=4, **warm)
    for step in range(total + 1):
        expected = formula(schedule, climb, step, total)
        assert learning_rate_factor(config, step, total) == pytest.approx(expected, abs=1e-12)
    assert (learning_rate_factor(config, 0, total) == 0.0) == (climb > 0)


Gradients = list[list[Any]]


def walk(
    config: OptimizerConfig, *, interrupted: bool = False, late: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray], Gradients]:
    """Follow 50 random gradients; where the weights ended, where they began, and the gradients.

    If interrupted, the gradients of one step are zero, and those of another one are missing. If
    late, a weight gets its first gradient later than the others.
    """
    draws = np.random.default_rng(0)
    layer = torch.nn.Linear(3, 2).double()
    layer.register_parameter("zero", torch.nn.Parameter(torch.zeros(2, 2).double()))
    shapes = [tuple(weight.shape) for weight in layer.parameters()]
    starts = [draws.normal(size=shape) for shape in shapes]
    starts[-1][:] = 0  # of which the norm is 0
    for weight, start in zip(layer.parameters(), starts, strict=True):
        weight.data = torch.from_numpy(start.copy())
    gradients: Gradients = [[draws.normal(size=shape) for shape in shapes] for _ in range(50)]
    if interrupted:
        gradients[10] = [np.zeros(shape) for shape in shapes]
        gradients[20] = [None for _ in shapes]
    if late:
        gradients[0][0] = gradients[1][0] = None
    optimizer, schedule = build_optimizer(layer.parameters(), config, 50)
    for step in gradients:
        for weight, gradient in zip(layer.parameters(), step, strict=True):
            weight.grad = None if gradient is None else torch.from_numpy(gradient)
        optimizer.step()
        schedule.step()
    return [weight.detach().numpy() for weight in layer.parameters()], starts, gradients


@pytest.mark.parametrize(
    ("trust", "momentum", "decay"), [(1e-3, 0.9, 0.0), (0.5, 0.0, 0.01), (0.5, 0.9, 0.01)]
)
def test_lars_is_simclr_s_rule_and_leaves_biases_unadapted_and_undecayed(
    trust: float, momentum: float, decay: float
) -> None:
    own = {"trust": trust, "momentum": momentum, "weight_decay": decay}
    config = options(name="lars", lr=0.5, schedule="cosine", warmup=0.2, **own)
    ends, starts, gradients = walk(config, interrupted=True)
    for number, (end, value) in enumerate(zip(ends, starts, strict=True)):
        velocity, matrix = np.zeros_like(value), value.ndim > 1
        for step, given in enumerate(gradients):
            gradient = given[number]
            if gradient is None:  # no gradient, no step
                continue
            slope = gradient + (decay * value if matrix else 0)
            sizes = math.sqrt((value**2).sum()), math.sqrt((slope**2).sum())
            ratio = trust * sizes[0] / sizes[1] if matrix and min(sizes) > 0 else 1.0
            rate = 0.5 * formula("cosine", 10, step, 50)
            velocity = momentum * velocity + rate * ratio * slope
            value = value - velocity
        np.testing.assert_allclose(end, value, rtol=1e-9, atol=1e-12)
        assert np.abs(end - starts[number]).max() > 1e-3


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_nesterovs_with_decay_in_the_gradient(momentum: float, late: bool) -> None:
    config = options(
        name="sgd", lr=0.05, momentum=momentum, weight_decay=0.1, schedule="linear", warmup=0.2
    )
    ends, starts, gradients = walk(config, late=late)
    for number, (end, value) in enumerate(zip(ends, starts, strict=True)):
        velocity = np.zeros_like(value)
        for step, given in enumerate(gradients):
            if given[number] is None:
                continue
            slope = given[number] + (0.1 * value if value.ndim > 1 else 0)
            velocity = momentum * velocity + slope
            value = value - 0.05 * formula("linear", 10, step, 50) * (slope + momentum * velocity)
        np.testing.assert_allclose(end, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("eps_added", ["corrected", "raw"])
def test_adamw_decays_apart_from_the_gradient(eps_added: str) -> None:
    """The raw epsilon is that of transformers in 2020, in its own order of operations."""
    own = {"eps": 1e-3, "eps_added": eps_added}
    config = options(lr=0.05, weight_decay=0.1, schedule="cosine", warmup=0.2, **own)
    ends, starts, gradients = walk(config)
    for number, (end, value) in enumerate(zip(ends, starts, strict=True)):
        first, second = np.zeros_like(value), np.zeros_like(value)
        for step, given in enumerate(gradients):
            rate = 0.05 * formula("cosine", 10, step, 50)
            if value.ndim > 1:
                value = value - rate * 0.1 * value
            first = 0.9 * first + 0.1 * given[number]
            second = 0.999 * second + 0.001 * given[number] ** 2
            corrections = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
            if eps_added == "raw":
                rate *= math.sqrt(corrections[1]) / corrections[0]
                value = value - rate * first / (np.sqrt(second) + 1e-3)
            else:
                scale = np.sqrt(second / corrections[1]) + 1e-3
                value = value - rate * first / corrections[0] / scale
        np.testing.assert_allclose(end, value, rtol=1e-9, atol=1e-12)
