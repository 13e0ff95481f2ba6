"""What `judge` promises, simulated: few false claims, and enough true ones."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tune_sentcl.judging.comparing import Comparison, Family

STUDIES = 1000
MOST = 0.05 + 2 * (0.05 * 0.95 / STUDIES) ** 0.5


def noise(rng: np.random.Generator, configurations: int, seeds: int) -> np.ndarray:
    """Scores with what a seed does to all alike, and what it does to each."""
    return np.asarray(rng.normal(size=(configurations, seeds)) + rng.normal(size=seeds) + 75.0)


def family(values: np.ndarray) -> Family:
    """Configurations `c0`, the baseline, `c1`, ... with their seeds."""
    scores = {f"c{row}": dict(enumerate(line)) for row, line in enumerate(values.tolist())}
    return Family(scores, control="c0")


def compared(of: Family, first: str, second: str) -> Comparison:
    found = of.compare(first, second)
    assert found is not None
    return found


def about_the_winner(of: Family) -> Iterator[Comparison]:
    """As `judge STUDY` asks: the best mean against the baseline and the runner-up."""
    best, second, *_ = (
        of.blocks.names[row] for row in of.blocks.table.mean(axis=1).argsort()[::-1]
    )
    for rival in sorted({"c0", second} - {best}):
        yield compared(of, best, rival)


def test_luck_establishes_nothing_about_the_winner_of_planned_seeds() -> None:
    rng, wrong = np.random.default_rng(6), 0
    for _ in range(STUDIES):
        found = about_the_winner(family(noise(rng, 6, 3)))
        wrong += any(one.verdict == "ESTABLISHED" for one in found)
    assert wrong / STUDIES <= MOST


def test_no_pair_that_one_may_pick_is_luck() -> None:
    # Finds a noise that is too small because the widest of equal configurations left it.
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(STUDIES):
        of = family(noise(rng, 6, 3))
        order = [of.blocks.names[row] for row in of.blocks.table.mean(axis=1).argsort()]
        found = [compared(replace(of, control=""), order[-1], order[0])]
        found += [compared(of, order[-1], "c0")] if order[-1] != "c0" else []
        wrong += any(one.verdict != "UNDECIDED" for one in found)
    assert wrong / STUDIES <= MOST


def test_a_true_difference_of_two_sds_is_established() -> None:
    rng, right = np.random.default_rng(5), 0
    for _ in range(STUDIES):
        values = noise(rng, 6, 5)
        values[1] += 2.0
        right += compared(family(values), "c1", "c0").verdict == "ESTABLISHED"
    assert right / STUDIES >= 0.42
