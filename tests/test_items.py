"""The bootstrap over a task's items, against simulated populations."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from tune_sentcl.items import (
    FILE,
    ItemScores,
    comparison,
    difference_interval,
    read_items,
    score_interval,
    write_items,
)


def pairs(seed: int, count: int, noise: float, *, ties: bool = False) -> ItemScores:
    """A model's cosines of pairs whose gold similarity they follow with some noise."""
    gold = np.random.default_rng(7).normal(size=count)
    values = gold + noise * np.random.default_rng(seed).normal(size=count)
    if ties:
        gold, values = np.round(gold), np.round(values, 1)
    return ItemScores("STS-B", "test", "spearman", values, gold)


def queries(seed: int, count: int, mean: float) -> ItemScores:
    values = np.random.default_rng(seed).beta(2 * mean, 2 * (1 - mean), size=count)
    return ItemScores("own", "dev", "ndcg@10", values)


@pytest.mark.parametrize("ties", [False, True])
def test_a_score_of_pairs_is_spearman_s_correlation(ties: bool) -> None:
    one, other = pairs(1, 300, 0.6, ties=ties), pairs(2, 300, 0.9, ties=ties)
    first, second = (scipy.stats.spearmanr(x.values, x.gold).statistic for x in (one, other))
    found = difference_interval(one, other, draws=200)
    assert found.value == pytest.approx(100 * (first - second))
    assert found.low < found.value < found.high
    (row,) = comparison([one], [other])
    assert (row["A"], row["B"]) == pytest.approx((100 * first, 100 * second))


@pytest.mark.parametrize("count", [1, 2])
def test_few_items_have_an_interval(count: int) -> None:
    # A draw of equal items has no correlation, which scipy would make an interval of NaN.
    for items in (pairs(1, count, 0.6), queries(1, count, 0.5)):
        found = score_interval(items)
        assert found.low <= found.value <= found.high


@pytest.mark.long
@pytest.mark.parametrize("kind", ["pairs", "queries"])
def test_the_interval_covers_the_difference_of_the_population(kind: str) -> None:
    """Of 1,000 tasks of 300 items, 94 to 96 % of the intervals hold the difference on all."""
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(1000):
        gold = generator.normal(size=300) if kind == "pairs" else None
        base = generator.normal(size=300) if gold is None else gold
        sides = [base + noise * generator.normal(size=300) for noise in (0.8, 1.2)]
        one, other = (ItemScores("t", "test", "m", side, gold) for side in sides)
        found = difference_interval(one, other, draws=500)
        covered += found.low <= 100 * TRUE[kind] <= found.high
    assert 940 <= covered <= 960


def spearman_of(noise: float) -> float:
    """Spearman's correlation of two normal variables, from their Pearson correlation."""
    return 6 / np.pi * float(np.arcsin(1 / np.sqrt(1 + noise**2) / 2))


TRUE = {"pairs": spearman_of(0.8) - spearman_of(1.2), "queries": 0.0}


def test_written_items_are_read_again(tmp_path: Path) -> None:
    one, other = pairs(1, 20, 0.6), queries(1, 20, 0.5)
    assert read_items(b"", "own", "dev", "ndcg@10") is None
    write_items([one, other], tmp_path)
    content = (tmp_path / FILE).read_bytes()
    for items in (one, other):
        found = read_items(content, items.task, items.split, items.metric)
        assert found is not None and score_interval(found) == score_interval(items)
    assert read_items(content, "own", "test", "ndcg@10") is None


def test_equal_models_do_not_differ_and_other_items_are_refused() -> None:
    one = pairs(1, 50, 0.6)
    same = difference_interval(one, one)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    with pytest.raises(ValueError, match="same items"):
        difference_interval(one, queries(1, 50, 0.5))
