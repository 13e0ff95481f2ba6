"""The greedy average on planted weights: better where it can be, and never worse."""

from collections.abc import Callable

import pytest
import torch
from export_samples import changed, shaken, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.export.soup import greedy, misfit
from tune_sentcl.model.encoder import Encoder

Score = Callable[[Encoder], float | None]


def weights(encoder: Encoder) -> torch.Tensor:
    return encoder.tail.layers[-1].linear.weight.detach().clone()


def filled(value: float) -> Encoder:
    """An encoder whose last layer holds one number."""
    encoder = toy(tail=4)
    with torch.no_grad():
        encoder.tail.layers[-1].linear.weight.fill_(value)
    return encoder


def near(target: float) -> Score:
    """The nearer the last layer is to a number, the higher."""
    return lambda encoder: -float((weights(encoder) - target).abs().max())


def soup(values: list[float], target: float) -> tuple[list[bool], float, float]:
    """Who is taken of members that hold these numbers, the soup's number and its score."""
    encoder, score = filled(values[0]), near(target)
    rest = [(str(n), filled(value).state_dict()) for n, value in enumerate(values[1:])]
    best = score(encoder)
    assert best is not None
    tried = greedy(encoder, best, rest, score)
    found = score(encoder)
    assert found is not None
    return [one.taken for one in tried], float(weights(encoder)[0, 0]), found


def test_members_on_either_side_of_the_best_make_it_better() -> None:
    taken, number, score = soup([1.0, -1.0, 50.0], 0.0)
    assert (taken, number, score) == ([True, False], 0.0, 0.0)


def test_what_makes_it_worse_stays_out_and_the_best_stays_itself() -> None:
    taken, number, score = soup([0.25, 1.0, 2.0], 0.0)
    assert (taken, number, score) == ([False, False], 0.25, -0.25)


def test_equal_members_average_to_themselves_to_the_bit() -> None:
    encoder = shaken(toy(tail=4), 1)
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    rest = [(str(n), {k: v.clone() for k, v in before.items()}) for n in range(4)]
    tried = greedy(encoder, 1.0, rest, lambda _: 1.0)
    assert all(one.taken for one in tried)
    assert all(torch.equal(w, before[name]) for name, w in encoder.state_dict().items())


@settings(max_examples=25)
@given(st.lists(st.floats(-4, 4, width=16), min_size=2, max_size=6), st.floats(-4, 4, width=16))
def test_as_the_recipe_says_and_never_worse_than_the_best(
    values: list[float], target: float
) -> None:
    values = sorted(values, key=lambda value: abs(value - target))
    taken, number, score = soup(values, target)
    members = [values[0]]
    for value, was in zip(values[1:], taken, strict=True):
        offered = [*members, value]
        without, with_it = (abs(sum(m) / len(m) - target) for m in (members, offered))
        if abs(with_it - without) > 1e-5:  # else rounding decides
            assert was == (with_it < without)
        members = offered if was else members
    assert number == pytest.approx(sum(members) / len(members), abs=1e-6)
    assert score >= -abs(values[0] - target) - 1e-6


def test_an_average_without_a_score_stays_out() -> None:
    encoder = toy(tail=4)
    opposite = changed(encoder, -1.0)

    def score(found: Encoder) -> float | None:
        if not weights(found).any():
            raise NonFiniteError("the zero vector")
        return 1.0

    (one,) = greedy(encoder, 1.0, [("opposite", opposite.state_dict())], score)
    assert (one.value, one.taken) == (None, False)
    assert weights(encoder).any()


def test_weights_that_cannot_be_averaged_are_told_apart() -> None:
    plain = toy(tail=4)
    assert misfit(plain, shaken(plain, 1)) is None
    assert "architecture" in (misfit(plain, toy(tail=5)) or "")
    assert "architecture" in (misfit(plain, toy()) or "")
    assert "pools" in (misfit(plain, toy("cls", tail=4)) or "")
    other = toy(tail=4)
    other.tail.layers[0].activation = "relu"
    assert "architecture" in (misfit(plain, other) or "")
