"""Comparisons with seeds as blocks: by least squares with dummies, by laws, and simulated."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tune_sentcl.judging.comparing import Comparison, Family, SeedBlocks, collapsed_seeds
from tune_sentcl.judging.statistics import dunnett_p, tukey_p

STUDIES = 1000
MOST = 0.05 + 2 * (0.05 * 0.95 / STUDIES) ** 0.5
MIRRORED = {"ESTABLISHED": "REVERSED", "REVERSED": "ESTABLISHED"}


def scores_of(table: np.ndarray) -> dict[str, dict[int, float]]:
    """A row a configuration `c0`, `c1`, ..., a column a seed; NaN for a missing score."""
    return {
        f"c{row}": {seed: value for seed, value in enumerate(line) if not math.isnan(value)}
        for row, line in enumerate(table.tolist())
    }


def drawn(rng: np.random.Generator, configurations: int, seeds: int) -> np.ndarray:
    """Normal scores with effects of configurations and seeds."""
    noise = rng.normal(size=(configurations, seeds))
    levels, blocks = rng.normal(size=(configurations, 1)), 3 * rng.normal(size=seeds)
    return np.asarray(75 + noise + levels + blocks)


def compared(family: Family, first: str, second: str, smallest: float = 0.005) -> Comparison:
    found = family.compare(first, second, smallest)
    assert found is not None
    return found


def by_dummies(table: np.ndarray) -> tuple[np.ndarray, float, int]:
    """The effects of configurations and seeds but the first, the noise's squares, and its df."""
    k, n = table.shape
    design = np.hstack([np.repeat(np.eye(k), n, axis=0), np.tile(np.eye(n), (k, 1))[:, 1:]])
    effects, squares, rank, _ = np.linalg.lstsq(design, table.ravel(), rcond=None)
    return effects, float(squares[0]), k * n - int(rank)


def studies() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(11)
    for _ in range(40):
        yield drawn(rng, int(rng.integers(2, 8)), int(rng.integers(2, 9)))


def test_a_greater_spread_is_found_by_an_f_test() -> None:
    # Finds a wrong sum of squares without a configuration, or wrong degrees of freedom.
    found = 0
    for table in studies():
        k, n = table.shape
        _, squares, _ = by_dummies(table)
        wide = set()
        for row in range(k) if k > 2 else ():
            _, rest, df = by_dummies(np.delete(table, row, axis=0))
            p = stats.f.sf((squares - rest) / (n - 1) / (rest / df), n - 1, df)
            wide |= {f"c{row}"} if p < 0.04 else set()
        if len(wide) < 2:  # a second one may be found without the first one
            assert wide <= SeedBlocks(scores_of(table)).apart
            found += len(wide)
    assert found > 3


def test_comparisons_are_those_of_tukey_and_dunnett() -> None:
    # Finds a critical value of another procedure, a factor of root 2, a wrong family size.
    checked = 0
    for table in studies():
        (k, n), (effects, squares, df) = table.shape, by_dummies(table)
        family = Family(scores_of(table), alpha=0.04, control="c0")
        if family.blocks.apart:
            continue
        checked += 1
        for first, second in ((1, 0), (k - 1, k - 2)):
            found = compared(family, f"c{first}", f"c{second}")
            difference, error = effects[first] - effects[second], math.sqrt(squares / df * 2 / n)
            assert (found.low + found.high) / 2 == pytest.approx(difference, abs=1e-8)
            reach = (found.high - found.low) / 2 / error
            for t, p in ((difference / error, found.p), (reach, 0.04)):
                expected_p = (tukey_p if second else dunnett_p)(t, k, df)
                assert p == pytest.approx(expected_p, abs=1e-6)
    assert checked >= 20


@pytest.mark.parametrize("control", ["c0", ""])
def test_a_greater_spread_leaves_the_pool(control: str) -> None:
    # Finds noise of one configuration in the intervals of the others.
    table = drawn(np.random.default_rng(4), 4, 6)
    table[1] += 5 * np.array([1, -1, 1, -1, 1, -1])
    family = Family(scores_of(table), alpha=0.04, control=control)
    assert family.blocks.apart == frozenset({"c1"})
    found, number = compared(family, "c1", "c0"), 3 if control else 6
    truth = stats.ttest_rel(table[1], table[0])
    assert (found.procedure, found.number, found.df) == ("Bonferroni t", number, 5)
    assert found.p == pytest.approx(min(1.0, number * float(truth.pvalue)))
    ends = truth.confidence_interval(1 - 0.04 / number)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    rest = compared(family, "c2", "c0")
    assert (rest.df, rest.configurations) == (10, 4)


def test_one_with_a_collapsed_seed_is_compared_by_its_own_differences() -> None:
    # Finds collapsed seeds that hide behind a high mean, or that each other hide.
    table = 75 + 0.1 * drawn(np.random.default_rng(3), 5, 12)
    table[1] += 30
    table[3] += 60
    table[1, 4] -= 20
    table[3, [2, 4]] -= 20
    scores = scores_of(table)
    collapsed = collapsed_seeds(scores)
    assert collapsed == {"c1": [4], "c3": [2, 4]}
    family = Family(scores, alpha=0.04, collapsed=collapsed)
    assert family.blocks.apart >= {"c1", "c3"}
    found = compared(family, "c1", "c0")
    assert (found.procedure, found.df) == ("Bonferroni t", 11)
    assert compared(family, "c4", "c2").df == 2 * 11


@st.composite
def families(draw: st.DrawFn) -> Family:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    table = drawn(rng, draw(st.integers(2, 4)), draw(st.sampled_from([2, 3, 6])))
    control = draw(st.sampled_from(["", "c0"]))
    return Family(scores_of(table), alpha=0.04, control=control)


def same(one: Comparison, other: Comparison, sign: int = 1) -> None:
    """Assert that two comparisons say the same, or with sign -1 the same of A and B swapped."""
    ends = (one.low, one.high) if sign > 0 else (-one.high, -one.low)
    assert (other.low, other.high) == pytest.approx(ends, abs=1e-8)
    assert (other.difference, other.p) == pytest.approx((sign * one.difference, one.p), abs=1e-8)
    assert (other.procedure, other.df) == (one.procedure, one.df)
    mirrored = MIRRORED.get(one.verdict, one.verdict)
    assert other.verdict == (one.verdict if sign > 0 else mirrored)


@given(families(), st.sampled_from([0.0, 0.005, 1.0, 4.0]))
def test_verdict_interval_and_p_agree(family: Family, smallest: float) -> None:
    # Finds a p of one procedure beside the interval of another.
    for pair in (("c1", "c0"), ("c0", "c1"), (family.blocks.names[-1], "c0")):
        found = compared(family, *pair, smallest)
        assume(abs(found.p - 0.04) > 1e-6)
        assert (found.p <= 0.04) == (not found.low <= 0 <= found.high)
        within = -smallest <= found.low and found.high <= smallest
        assert (found.verdict == "NO DIFFERENCE") == within
        if not within:
            decided = found.verdict in MIRRORED
            assert decided == (found.p <= 0.04)
            assert not decided or (found.verdict == "ESTABLISHED") == (found.difference > 0)


@given(families(), st.sampled_from([0.005, 2.0]))
def test_swapping_two_configurations_mirrors_the_comparison(
    family: Family, smallest: float
) -> None:
    # Finds a sign that one of the two directions lost.
    for second in ("c0", family.blocks.names[-1]):
        if second != "c1":
            swapped = compared(family, second, "c1", smallest)
            same(compared(family, "c1", second, smallest), swapped, -1)


@given(families(), st.integers(0, 1), st.floats(-20, 20))
def test_what_a_seed_adds_to_all_changes_nothing(family: Family, seed: int, much: float) -> None:
    # Finds noise that the seeds' own effects enter.
    moved = {
        name: {at: value + much * (at == seed) for at, value in found.items()}
        for name, found in family.scores.items()
    }
    same(compared(family, "c1", "c0"), compared(replace(family, scores=moved), "c1", "c0"))


@given(families(), st.integers(0, 10_000), st.booleans())
def test_no_order_changes_a_comparison(family: Family, stream: int, collapse: bool) -> None:
    # Finds a pool that depends on which configuration is looked at first.
    rng = np.random.default_rng(stream)
    scores = {name: dict(found) for name, found in family.scores.items()}
    scores["c1"][0] -= 30 * collapse
    shuffled = {
        str(name): {
            int(seed): scores[str(name)][seed] for seed in rng.permutation([*scores["c0"]])
        }
        for name in rng.permutation([*scores])
    }
    one, other = (
        replace(family, scores=found, collapsed=collapsed_seeds(found))
        for found in (scores, shuffled)
    )
    assert one.collapsed == other.collapsed
    assert one.blocks.apart == other.blocks.apart
    same(compared(one, "c1", "c0"), compared(other, "c1", "c0"))


def noise(rng: np.random.Generator, configurations: int, seeds: int) -> np.ndarray:
    """Equal configurations."""
    return np.asarray(rng.normal(size=(configurations, seeds)) + rng.normal(size=seeds) + 75.0)


def family(values: np.ndarray) -> Family:
    """Configurations `c0`, the baseline, `c1`, ... with their seeds."""
    return Family(scores_of(values), control="c0")


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
