"""The bootstrap over a task's items, against scipy's and against simulated populations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tune_sentcl.items import (
    FILE,
    ItemScores,
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


def correlation(first: Any, second: Any, axis: int = -1) -> Any:
    ranks = [scipy.stats.rankdata(side, axis=axis) for side in (first, second)]
    return scipy.stats.pearsonr(*ranks, axis=axis).statistic


@pytest.mark.parametrize("ties", [False, True])
def test_an_interval_of_pairs_is_that_of_scipy(ties: bool) -> None:
    one, other = pairs(1, 300, 0.6, ties=ties), pairs(2, 300, 0.9, ties=ties)

    def difference(x: Any, y: Any, gold: Any, axis: int = -1) -> Any:
        return correlation(x, gold, axis) - correlation(y, gold, axis)

    theirs = scipy.stats.bootstrap(
        (one.values, other.values, one.gold),
        difference,
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=10_000,
        batch=500,
        rng=np.random.default_rng(3),
    ).confidence_interval
    ours = difference_interval(one, other)
    assert ours.value == pytest.approx(100 * difference(one.values, other.values, one.gold))
    # Two runs of scipy with different seeds are as far apart.
    assert ours.low == pytest.approx(100 * theirs.low, abs=0.3)
    assert ours.high == pytest.approx(100 * theirs.high, abs=0.3)


def test_an_interval_of_queries_is_that_of_scipy() -> None:
    one = queries(1, 200, 0.7)
    theirs = scipy.stats.bootstrap(
        (one.values,), np.mean, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    ours = score_interval(one)
    assert ours.value == pytest.approx(100 * one.values.mean())
    assert (ours.low, ours.high) == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=0.2)


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
