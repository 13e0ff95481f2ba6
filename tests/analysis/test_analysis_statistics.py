"""The statistics against formulas written out, and against simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from tune_sentcl.analysis.papers.verification import prediction_interval
from tune_sentcl.judging.evidence import CONFIRMATION_SEEDS
from tune_sentcl.judging.statistics import (
    critical_t,
    dunnett_p,
    smallest_shown,
    tukey_p,
    two_sided_p,
)
from tune_sentcl.results.standings import Estimate


def test_one_more_seed_lies_within_the_prediction_interval() -> None:
    # t of 2 degrees of freedom at 97.5 %: 4.303.
    low, high = prediction_interval(Estimate.of([70.0, 72.0, 74.0]))
    assert (low, high) == pytest.approx((72 - 9.937, 72 + 9.937), abs=1e-3)
    draws = np.random.default_rng(0).normal(size=(4000, 4))
    inside = 0
    for *seeds, other in draws.tolist():
        low, high = prediction_interval(Estimate.of(seeds))
        inside += low <= other <= high
    assert 0.94 < inside / len(draws) < 0.96


@pytest.mark.parametrize(("others", "df"), [(2, 1), (2, 6), (5, 10), (5, 100), (19, 38)])
def test_dunnett_is_a_multivariate_t(others: int, df: int) -> None:
    # Finds a wrong correlation, and an integral that few degrees of freedom break.
    shape = (np.eye(others) + 1) / 2
    for t in (0.0, 1.0, 2.5, 4.0):
        ends, rng = np.full(others, t), np.random.default_rng(0)
        inside = stats.multivariate_t.cdf(
            ends, shape=shape, df=df, lower_limit=-ends, random_state=rng
        )
        assert dunnett_p(t, others + 1, df) == pytest.approx(1 - inside, abs=1e-3)
        assert dunnett_p(-t, others + 1, df) == dunnett_p(t, others + 1, df)


@pytest.mark.parametrize("df", [1, 4, 30])
def test_two_configurations_are_compared_by_students_t(df: int) -> None:
    for t in (-3.0, 0.0, 0.7, 8.0):
        expected = 2 * stats.t.sf(abs(t), df)
        found = (dunnett_p(t, 2, df), tukey_p(t, 2, df), two_sided_p(t, df))
        assert found == pytest.approx((expected,) * 3)


def test_a_critical_t_has_the_p_of_its_level() -> None:
    # Finds t and studentized range mixed up: one is the other times root 2.
    assert tukey_p(critical_t(10, 6, 0.05, with_control=False), 6, 10) == pytest.approx(0.05)
    assert critical_t(10, 6, 0.05, with_control=False) == pytest.approx(4.912 / math.sqrt(2), 1e-3)
    assert critical_t(10, 6, 0.05, with_control=True) == pytest.approx(2.99, abs=0.005)  # tables
    assert math.isinf(critical_t(0, 6, 0.05, with_control=True))


@pytest.mark.parametrize(("seeds", "configurations"), [(3, 6), (5, 3), (2, 9)])
def test_the_smallest_difference_that_is_shown_is_shown_in_four_of_five_studies(
    seeds: int, configurations: int
) -> None:
    # Finds a power of another test, as of the t test of one pair.
    rng, draws = np.random.default_rng(seeds), 2000
    values = rng.normal(size=(draws, configurations, seeds))
    values[:, 1] += smallest_shown(seeds, configurations, 0.04)
    means = values.mean(axis=2)
    noise = values - means[:, :, None] - values.mean(axis=1)[:, None]
    noise += means.mean(axis=1)[:, None, None]
    df = (seeds - 1) * (configurations - 1)
    errors = np.sqrt((noise**2).sum(axis=(1, 2)) / df * 2 / seeds)
    needed = critical_t(df, configurations, 0.04, with_control=True)
    power = float(((means[:, 1] - means[:, 0]) / errors > needed).mean())
    assert power == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / draws))
    assert math.isinf(smallest_shown(1, configurations, 0.04))


def test_fresh_seeds_are_the_fewest_that_show_two_deviations_in_four_of_five_searches() -> None:
    # Finds a number for another test, other degrees of freedom or another level. Of winner,
    # runner-up and untrained baseline two have noise, and winner and runner-up differ by 2.
    rng, draws = np.random.default_rng(0), 100_000
    shown = {}
    for seeds in (CONFIRMATION_SEEDS - 1, CONFIRMATION_SEEDS):
        df = seeds - 1
        noise = np.sqrt(stats.chi2.rvs(df, size=draws, random_state=rng) / df)
        means = rng.normal(size=(draws, 3))
        ts = np.abs(means[:, 1:] - means[:, :1]).max(axis=1) / math.sqrt(2) / noise
        needed = np.quantile(ts, 1 - 0.04)
        effects_of_seeds = rng.normal(size=(draws, 1, seeds))
        scores = rng.normal(size=(draws, 2, seeds)) + effects_of_seeds
        differences = scores[:, 0] + 2.0 - scores[:, 1]
        found = stats.ttest_1samp(differences, 0.0, axis=1).statistic
        shown[seeds] = float((found > needed).mean())
    assert shown[CONFIRMATION_SEEDS - 1] < 0.79
    assert shown[CONFIRMATION_SEEDS] > 0.81
