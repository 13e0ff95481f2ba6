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
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.35])
@pytest.mark.parametrize("total", [1, 7, 500])
def test_the_schedule_equals_its_formula_at_every_step(
    schedule: str, warmup: float, total: int
) -> None:
    config = options(schedule=schedule, warmup=warmup)
    climb = math.floor(warmup * total)
    for step in range(total):
        expected = formula(schedule, climb, step, total)
        assert learning_rate_factor(config, step, total) == pytest.approx(expected, abs=1e-12)
    assert (learning_rate_factor(config, 0, total) == 0.0) == (climb > 0)
    end = learning_rate_factor(config, total, total)
    assert end == (1.0 if schedule == "constant" else 0.0)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("epochs_up", "climb"), [(0.0, 0), (0.5, 3), (1.0, 6), (2.0, 12)])
def test_a_warm_up_may_be_counted_in_epochs(schedule: str, epochs_up: float, climb: int) -> None:
    # Four epochs of six steps; the share is not asked.
    config = options(schedule=schedule, warmup=0.9, warmup_epochs=epochs_up, epochs=4)
    for step in range(25):
        expected = formula(schedule, climb, step, 24)
        assert learning_rate_factor(config, step, 24) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["adamw", "sgd", "lars"])
def test_every_group_follows_the_schedule(name: str) -> None:
    config = options(name=name, lr=0.3, schedule="cosine", warmup=0.25, epochs=1)
    layer = torch.nn.Linear(3, 2)
    optimizer, schedule = build_optimizer(layer.parameters(), config, 20)
    assert len(optimizer.param_groups) == 2
    for step in range(20):
        rate = 0.3 * formula("cosine", 5, step, 20)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([rate, rate])
        layer(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.0, 0.0])


def walk(config: OptimizerConfig, steps: int) -> tuple[list[np.ndarray], list[Any], list[Any]]:
    """Follow random gradients; where the weights ended, where they began, and the gradients."""
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(3, 2).double()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    starts = [weight.detach().numpy().copy() for weight in layer.parameters()]
    gradients = [
        [torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in starts_of(layer)]
        for _ in range(steps)
    ]
    optimizer, schedule = build_optimizer(layer.parameters(), config, steps)
    for step in gradients:
        for weight, gradient in zip(layer.parameters(), step, strict=True):
            weight.grad = gradient
        optimizer.step()
        schedule.step()
    ends = [weight.detach().numpy() for weight in layer.parameters()]
    return ends, starts, [[g.numpy() for g in step] for step in gradients]


def starts_of(layer: torch.nn.Linear) -> list[torch.Tensor]:
    return [weight.detach() for weight in layer.parameters()]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_nesterovs_with_decay_in_the_gradient(momentum: float) -> None:
    config = options(
        name="sgd", lr=0.05, momentum=momentum, weight_decay=0.1, schedule="linear", warmup=0.2
    )
    ends, starts, gradients = walk(config, 50)
    for number, (found, value) in enumerate(zip(ends, starts, strict=True)):
        velocity = np.zeros_like(value)
        for step, given in enumerate(gradients):
            slope = given[number] + (0.1 * value if number == 0 else 0)  # the bias has no decay
            velocity = momentum * velocity + slope
            value = value - 0.05 * formula("linear", 10, step, 50) * (slope + momentum * velocity)
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("eps_added", ["corrected", "raw"])
def test_adamw_decays_apart_from_the_gradient(eps_added: str) -> None:
    """The raw epsilon is that of transformers in 2020, in its own order of operations."""
    own = {"eps": 1e-3, "eps_added": eps_added}
    config = options(lr=0.05, weight_decay=0.1, schedule="cosine", warmup=0.2, **own)
    ends, starts, gradients = walk(config, 50)
    for number, (found, value) in enumerate(zip(ends, starts, strict=True)):
        first, second = np.zeros_like(value), np.zeros_like(value)
        for step, given in enumerate(gradients):
            rate = 0.05 * formula("cosine", 10, step, 50)
            if number == 0:
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
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["adamw", "sgd", "lars"])
def test_without_gradients_only_matrices_decay(name: str) -> None:
    own = {"trust": 1.0} if name == "lars" else {}
    config = options(name=name, lr=0.1, weight_decay=0.5, warmup=0.0, **own)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    optimizer, _ = build_optimizer(module.parameters(), config, 10)
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    after = module.state_dict()
    assert (after["0.weight"].abs() < before["0.weight"].abs()).all()
    for key in ("0.bias", "1.weight", "1.bias"):
        assert torch.equal(after[key], before[key])
