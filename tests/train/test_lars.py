"""LARS against SimCLR's rule restated in plain numbers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tune_sentcl.config import LarsConfig
from tune_sentcl.train.optimizer import Lars, build_optimizer, learning_rate_factor

STEPS = 50


def restated(
    weights: Sequence[float],
    gradients: Sequence[Sequence[float] | None],
    rates: Sequence[float],
    rule: dict[str, Any],
) -> list[float]:
    """One parameter's way, number by number; no gradient, no step."""
    values, velocity = list(weights), [0.0] * len(weights)
    for gradient, rate in zip(gradients, rates, strict=True):
        if gradient is None:
            continue
        slope = [g + rule["decay"] * w for g, w in zip(gradient, values, strict=True)]
        ratio = 1.0
        sizes = (math.sqrt(sum(w * w for w in values)), math.sqrt(sum(g * g for g in slope)))
        if rule["adapt"] and sizes[0] > 0 and sizes[1] > 0:
            ratio = rule["trust"] * sizes[0] / sizes[1]
        for i, g in enumerate(slope):
            velocity[i] = rule["momentum"] * velocity[i] + rate * ratio * g
            values[i] -= velocity[i]
    return values


def random_gradients(seed: int, size: int) -> list[list[float] | None]:
    generator = np.random.default_rng(seed)
    found: list[list[float] | None] = [
        g.tolist() for g in generator.normal(size=(STEPS, size)) * 0.5
    ]
    found[10] = [0.0] * size
    found[20] = None
    return found


def gradient_of(numbers: list[float] | None, shape: torch.Size) -> torch.Tensor | None:
    return None if numbers is None else torch.tensor(numbers, dtype=torch.float64).view(shape)


def follow(optimizer: Lars, parameters: list[Any], gradients: list[Any], rates: Any) -> None:
    for number, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for parameter, given in zip(parameters, gradients, strict=True):
            step = given[number]
            shape = parameter.shape
            parameter.grad = gradient_of(step, shape)
        optimizer.step()


@pytest.mark.parametrize(
    ("trust", "momentum", "decay"), [(1e-3, 0.9, 0.0), (0.5, 0.0, 0.01), (0.5, 0.9, 0.01)]
)
def test_equals_the_rule_in_plain_numbers(trust: float, momentum: float, decay: float) -> None:
    shapes = {"matrix": (3, 2), "zero": (2, 2), "bias": (3,)}
    generator = torch.Generator().manual_seed(0)
    parameters = [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in shapes.values()
    ]
    with torch.no_grad():
        parameters[1].zero_()  # a norm of 0, so that the first ratio is 1
    starts = [p.detach().flatten().tolist() for p in parameters]
    gradients = [random_gradients(seed, len(start)) for seed, start in enumerate(starts)]
    rates = [0.5 * (1 - number / STEPS) for number in range(STEPS)]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:2]},
        {"params": parameters[2:], "weight_decay": 0.0, "adapt": False},
    ]
    optimizer = Lars(groups, 0.5, momentum, decay, trust)
    follow(optimizer, parameters, gradients, rates)
    for number, name in enumerate(shapes):
        rule = {"momentum": momentum, "trust": trust, "adapt": name != "bias"}
        rule["decay"] = 0.0 if name == "bias" else decay
        expected = restated(starts[number], gradients[number], rates, rule)
        found = parameters[number].detach().flatten()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=name)
        assert float(np.abs(found.numpy() - starts[number]).max()) > 1e-3


def test_the_config_leaves_biases_unadapted_and_undecayed() -> None:
    values = {"name": "lars", "lr": 0.5, "weight_decay": 1e-2, "trust": 0.01, "warmup": 0.2}
    config = LarsConfig.model_validate({**values, "schedule": "cosine"})
    layer = torch.nn.Linear(3, 2).double()
    starts = [w.detach().flatten().tolist() for w in layer.parameters()]
    gradients = [random_gradients(seed, len(start)) for seed, start in enumerate(starts)]
    optimizer, schedule = build_optimizer(layer.parameters(), config, STEPS)
    for number in range(STEPS):
        for weight, given in zip(layer.parameters(), gradients, strict=True):
            step = given[number]
            weight.grad = gradient_of(step, weight.shape)
        optimizer.step()
        schedule.step()
    rates = [0.5 * learning_rate_factor(config, number, STEPS) for number in range(STEPS)]
    common = {"momentum": 0.9, "trust": 0.01}
    rules = [{**common, "adapt": True, "decay": 1e-2}, {**common, "adapt": False, "decay": 0.0}]
    for weight, start, given, rule in zip(
        layer.parameters(), starts, gradients, rules, strict=True
    ):
        expected = restated(start, given, rates, rule)
        np.testing.assert_allclose(weight.detach().flatten(), expected, rtol=1e-9, atol=1e-12)


def test_a_closure_is_called_under_gradients() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = Lars([parameter], lr=1.0)

    def closure() -> float:
        loss = (parameter**2).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 2.0
    assert float(parameter.detach()[0]) < 1.0
