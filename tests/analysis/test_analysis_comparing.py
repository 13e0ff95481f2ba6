"""What `judge` promises, simulated: few false claims however often one asks, enough true ones."""

import math

import numpy as np
import pytest

from tune_sentcl.judging.comparing import (
    MIN_SEEDS,
    Comparison,
    Scores,
    compare,
)

REPETITIONS = 200


def drawn(values: np.ndarray, seeds: int) -> dict[str, dict[int, float]]:
    """Configurations `c00`, `c01`, ... with their first seeds."""
    return {
        f"c{row:02}": dict(enumerate(line[:seeds])) for row, line in enumerate(values.tolist())
    }


def about_the_winner(scores: Scores) -> list[Comparison]:
    """As `judge STUDY` asks: the best mean against the baseline and the runner-up."""
    best, second, *_ = sorted(scores, key=lambda name: -math.fsum(scores[name].values()))
    return [compare(scores, best, rival) for rival in sorted({"c00", second} - {best})]


def noise(rng: np.random.Generator, configurations: int, seeds: int) -> np.ndarray:
    """Scores with what a seed does to all alike, and what it does to each."""
    return rng.normal(size=(configurations, seeds)) + rng.normal(size=seeds) + 75.0


@pytest.mark.parametrize("configurations", [2, 20])
def test_luck_establishes_nothing_however_often_one_asks(configurations: int) -> None:
    rng = np.random.default_rng(configurations)
    at_three = at_any_time = 0
    for _ in range(REPETITIONS):
        values = noise(rng, configurations, 12)
        found = [
            any(one.verdict == "ESTABLISHED" for one in about_the_winner(drawn(values, seeds)))
            for seeds in range(3, 13)
        ]
        at_three += found[0]
        at_any_time += any(found)
    assert at_three <= 18
    assert at_any_time <= 18


def test_no_pair_that_one_may_pick_is_luck() -> None:
    # The highest mean against the lowest: the largest difference that there is among twenty.
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(REPETITIONS):
        values = noise(rng, 20, 10)
        for seeds in range(3, 11):
            order = values[:, :seeds].mean(axis=1).argsort()
            scores = drawn(values, seeds)
            found = compare(scores, f"c{order[-1]:02}", f"c{order[0]:02}")
            if found.verdict == "ESTABLISHED":
                wrong += 1
                break
    assert wrong <= 18


def test_nor_is_it_with_alpha_for_one_pair_asked_after_each_of_many_seeds() -> None:
    rng = np.random.default_rng(9)
    wrong = 0
    for _ in range(REPETITIONS):
        values = noise(rng, 2, 40)
        wrong += any(
            found.verdict == "ESTABLISHED" or found.reverse
            for found in (compare(drawn(values, n), "c01", "c00") for n in range(3, 41))
        )
    assert wrong <= 18


@pytest.mark.parametrize(("configurations", "again"), [(2, False), (20, False), (20, True)])
def test_a_true_difference_is_established_with_the_seeds_that_were_asked_for(
    configurations: int, again: bool
) -> None:
    # The last one is 2 sds better; `again`: more seeds are run as long as they are asked for.
    rng = np.random.default_rng(configurations + again)
    right = 0
    for _ in range(REPETITIONS):
        values = noise(rng, configurations, 100)
        values[-1] += 2.0
        better, seeds, asked = f"c{configurations - 1:02}", MIN_SEEDS, 0
        while True:
            found = compare(drawn(values, seeds), better, "c00")
            if found.more_seeds is None or (asked and not again):
                break
            seeds, asked = seeds + found.more_seeds, asked + 1
        right += found.verdict == "ESTABLISHED"
    assert right >= 147
