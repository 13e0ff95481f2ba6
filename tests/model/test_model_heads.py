"""The pair classifier against torch's own layers and a loop over pairs."""

import pytest
import torch
from torch import nn

from tune_sentcl.model.heads import Activation, PairClassifier


def test_draws_what_torch_draws_from_the_same_seed() -> None:
    torch.manual_seed(5)
    expected = [nn.Linear(12, 7), nn.Linear(7, 3)]
    generator = torch.Generator().manual_seed(5)
    found = PairClassifier(4, 7, "none", generator)
    ours = [layer for layer in found.layers if isinstance(layer, nn.Linear)]
    for left, right in zip(ours, expected, strict=True):
        assert torch.equal(left.weight, right.weight)
        assert torch.equal(left.bias, right.bias)


def test_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    PairClassifier(4, 7, "relu", torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
def test_scores_equal_the_formula(activation: Activation) -> None:
    generator = torch.Generator().manual_seed(1)
    head = PairClassifier(2, 5, activation, generator)
    u, v = torch.randn(4, 2, generator=generator), torch.randn(4, 2, generator=generator)
    first, second = head.layers[0], head.layers[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    between = {"none": lambda x: x, "relu": torch.relu, "tanh": torch.tanh}[activation]
    for row in range(4):
        features = torch.tensor(
            [*u[row], *v[row], *[abs(a - b) for a, b in zip(u[row], v[row], strict=True)]]
        )
        expected = second.weight @ between(first.weight @ features + first.bias) + second.bias
        torch.testing.assert_close(head(u, v)[row], expected)
