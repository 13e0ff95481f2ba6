"""Comparisons with seeds as blocks, against least squares by dummies and by their laws."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tune_sentcl.judging.comparing import Comparison, Family
from tune_sentcl.judging.seed_blocks import SeedBlocks

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


def by_dummies(
    scores: dict[str, dict[int, float]], first: str, second: str
) -> tuple[float, float, int] | None:
    """A difference, its error and their degrees of freedom; None if the cells do not show it.

    A column for each configuration and for each seed but the first.
    """
    cells = [(name, seed) for name, found in scores.items() for seed in found]
    columns = [*scores, *sorted({seed for _, seed in cells})[1:]]
    design = np.array([[float(column in cell) for column in columns] for cell in cells])
    values = np.array([scores[name][seed] for name, seed in cells])
    effects, _, rank, _ = np.linalg.lstsq(design, values, rcond=1e-10)
    weights = np.array([(column == first) - (column == second) for column in columns], float)
    parts = np.linalg.lstsq(design.T, weights, rcond=1e-10)[0]
    if not np.allclose(design.T @ parts, weights, atol=1e-8):
        return None
    squares, df = ((values - design @ effects) ** 2).sum(), len(cells) - int(rank)
    return weights @ effects, math.sqrt(squares / max(df, 1) * parts @ parts), df


def studies() -> Iterator[tuple[np.ndarray, bool]]:
    """Drawn tables; seven of eight lack a fifth of their cells."""
    rng = np.random.default_rng(11)
    for number in range(200):
        table = drawn(rng, int(rng.integers(2, 8)), int(rng.integers(2, 9)))
        missing = (rng.random(table.shape) < 0.2) & (number % 8 > 0)
        missing[:, 0] = False
        yield np.where(missing, np.nan, table), bool(missing.any())


def test_blocks_are_least_squares_with_a_dummy_each() -> None:
    # Finds a wrong weight of missing cells, and a wrong number of degrees of freedom.
    pooled = 0
    for table, _ in studies():
        scores, blocks = scores_of(table), SeedBlocks(scores_of(table))
        names = [name for name in blocks.names if name not in blocks.apart]
        for pair in pairwise(names):
            expected = by_dummies({name: scores[name] for name in blocks.pool}, *pair)
            found = blocks.contrast(*pair)
            if expected is None or not expected[2]:
                assert found is None or not found.pooled
            else:
                assert found is not None and found.pooled
                assert (found.difference, found.error) == pytest.approx(expected[:2], abs=1e-8)
                assert found.df == expected[2]
                pooled += 1
    assert pooled > 500


def test_planned_comparisons_are_those_of_tukey_and_dunnett() -> None:
    # Finds a critical value of another procedure, a factor of root 2, a wrong family size.
    checked = 0
    for table, lacks in studies():
        scores, k = scores_of(table), len(table)
        family = Family(scores, alpha=0.04, fixed=True, control="c0")
        if lacks or family.blocks.apart:
            continue
        checked += 1
        for pair in (("c1", "c0"), (f"c{k - 1}", f"c{k - 2}")):
            found, expected = compared(family, *pair), by_dummies(scores, *pair)
            assert expected is not None
            difference, error, df = expected
            assert (found.low + found.high) / 2 == pytest.approx(difference, abs=1e-8)
            reach = (found.high - found.low) / 2 / error
            for t, p in ((difference / error, found.p), (reach, 0.04)):
                expected_p = stats.studentized_range.sf(abs(t) * math.sqrt(2), k, df)
                if "c0" in pair:
                    ends, many = np.full(k - 1, abs(t)), (np.eye(k - 1) + 1) / 2
                    known = {"shape": many, "df": df, "lower_limit": -ends}
                    rng = np.random.default_rng(0)
                    expected_p = 1 - stats.multivariate_t.cdf(ends, **known, random_state=rng)
                assert p == pytest.approx(expected_p, abs=2e-3)
    assert checked >= 20


@pytest.mark.parametrize("control", ["c0", None])
def test_a_greater_spread_leaves_the_pool(control: str | None) -> None:
    # Finds noise of one configuration in the intervals of the others.
    table = drawn(np.random.default_rng(4), 4, 6)
    table[1] += 5 * np.array([1, -1, 1, -1, 1, -1])
    family = Family(scores_of(table), alpha=0.04, fixed=True, control=control)
    assert family.blocks.apart == frozenset({"c1"})
    found, number = compared(family, "c1", "c0"), 3 if control else 6
    truth = stats.ttest_rel(table[1], table[0])
    assert (found.procedure, found.number, found.df) == ("Bonferroni t", number, 5)
    assert found.p == pytest.approx(min(1.0, number * float(truth.pvalue)))
    ends = truth.confidence_interval(1 - 0.04 / number)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    rest = compared(family, "c2", "c0")
    assert (rest.pooled, rest.df, rest.configurations) == (True, 10, 4)


def test_one_with_a_collapsed_seed_is_better_only_than_another_such_one() -> None:
    # Finds collapsed seeds that hide behind a high mean, or that each other hide.
    table = 75 + 0.1 * drawn(np.random.default_rng(3), 5, 12)
    table[1] += 30
    table[3] += 60
    table[1, 4] -= 20
    table[3, [2, 4]] -= 20
    family = Family(scores_of(table), alpha=0.04, fixed=True)
    assert family.blocks.collapsed == {"c1": [4], "c3": [2, 4]}
    assert compared(family, "c1", "c0").low > 0
    assert compared(family, "c1", "c0").verdict == "UNDECIDED"
    assert compared(family, "c0", "c1").verdict == "UNDECIDED"
    assert compared(family, "c3", "c1").verdict == "ESTABLISHED"
    elsewhere = Family(scores_of(table[:3, :4]), fixed=True, fallen=frozenset({"c1"}))
    assert compared(elsewhere, "c1", "c0").verdict == "UNDECIDED"


@st.composite
def families(draw: st.DrawFn) -> Family:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    table = drawn(rng, draw(st.integers(2, 4)), draw(st.sampled_from([2, 3, 6])))
    control, fixed = draw(st.sampled_from([None, "c0"])), draw(st.booleans())
    return Family(scores_of(table), alpha=0.04, fixed=fixed, control=control)


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
        if not within and not family.blocks.collapsed:
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
    one, other = (replace(family, scores=found) for found in (scores, shuffled))
    assert one.blocks.collapsed == other.blocks.collapsed
    assert one.blocks.apart == other.blocks.apart
    same(compared(one, "c1", "c0"), compared(other, "c1", "c0"))
