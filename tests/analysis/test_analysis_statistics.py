"""The statistics against formulas written out, and against simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from tune_sentcl.judging.statistics import (
    critical_t,
    dunnett_p,
    log_evidence,
    mean,
    planned_critical,
    prediction_interval,
    sd,
    seeds_that_show,
    sequential_critical,
    smallest_shown,
    tukey_p,
    two_sided_p,
)


def test_a_mean_and_a_deviation() -> None:
    assert mean([70.0, 72.0, 74.0]) == 72.0
    assert sd([70.0, 72.0, 74.0]) == 2.0
    assert math.isnan(mean([]))
    assert math.isnan(sd([70.0]))


def test_one_more_seed_lies_within_the_prediction_interval() -> None:
    # t of 2 degrees of freedom at 97.5 %: 4.303.
    low, high = prediction_interval([70.0, 72.0, 74.0])
    assert (low, high) == pytest.approx((72 - 9.937, 72 + 9.937), abs=1e-3)
    assert prediction_interval([70.0]) == (-math.inf, math.inf)
    draws = np.random.default_rng(0).normal(size=(4000, 4))
    inside = 0
    for *seeds, other in draws.tolist():
        low, high = prediction_interval(seeds)
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
        assert dunnett_p(t, others, df) == pytest.approx(1 - inside, abs=1e-3)
        assert dunnett_p(-t, others, df) == dunnett_p(t, others, df)


@pytest.mark.parametrize("df", [1, 4, 30])
def test_two_configurations_are_compared_by_students_t(df: int) -> None:
    for t in (-3.0, 0.0, 0.7, 8.0):
        expected = 2 * stats.t.sf(abs(t), df)
        found = (dunnett_p(t, 1, df), tukey_p(t, 2, df), two_sided_p(t, df))
        assert found == pytest.approx((expected,) * 3)


def test_a_critical_t_has_the_p_of_its_level() -> None:
    # Finds t and studentized range mixed up: one is the other times root 2.
    assert tukey_p(critical_t(10, 6, 0.05, with_control=False), 6, 10) == pytest.approx(0.05)
    assert critical_t(10, 6, 0.05, with_control=False) == pytest.approx(4.912 / math.sqrt(2), 1e-3)
    assert critical_t(10, 6, 0.05, with_control=True) == pytest.approx(2.99, abs=0.005)  # tables
    assert planned_critical(3, 6, 0.05, with_control=True) == pytest.approx(2.99, abs=0.005)
    assert math.isinf(planned_critical(1, 6, 0.05, with_control=True))


@pytest.mark.parametrize(
    ("t", "df", "n"), [(0, 4, 5), (2, 4, 5), (-6, 2, 3), (3, 22, 12), (5, 1, 2)]
)
def test_evidence_is_the_likelihood_ratio_that_it_says(t: float, df: int, n: int) -> None:
    # By quadrature over the effect: the noncentral t's density against the central one's.
    effects = np.linspace(-20, 20, 8001)
    likelihood = np.nan_to_num(stats.nct.pdf(t, df, effects * math.sqrt(n)))
    prior = stats.norm.pdf(effects, scale=2)
    expected = np.trapezoid(prior * likelihood, effects) / stats.t.pdf(t, df)
    assert math.exp(log_evidence(t, df, n)) == pytest.approx(expected, rel=1e-4)


def test_the_lasting_interval_ends_where_the_evidence_does() -> None:
    for df, n, alpha in ((5, 6, 0.05), (20, 5, 0.01), (33, 12, 0.05 / 45)):
        needed = sequential_critical(df, n, alpha)
        assert math.exp(log_evidence(needed, df, n)) == pytest.approx(1 / alpha)
    assert math.isinf(sequential_critical(2, 3, 0.05)), "no t is enough"
    assert math.exp(log_evidence(math.inf, 2, 3)) == pytest.approx(13) and 13 < 1 / 0.05


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
    needed = planned_critical(seeds, configurations, 0.04, with_control=True)
    power = float(((means[:, 1] - means[:, 0]) / errors > needed).mean())
    assert power == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / draws))
    assert math.isinf(smallest_shown(1, configurations, 0.04))


def test_seeds_are_asked_for_by_difference_and_margin() -> None:
    def critical(seeds: int) -> tuple[float, float]:
        return planned_critical(seeds, 3, 0.04, with_control=True), 2 * (seeds - 1)

    few, more = (seeds_that_show(effect, 0.0, critical, 40) for effect in (2.0, 1.0))
    assert few is not None and more is not None and few < more
    assert smallest_shown(few, 3, 0.04) <= 2.0 < smallest_shown(few - 1, 3, 0.04)
    assert seeds_that_show(0.0, 0.0, critical, 10) is None
    assert seeds_that_show(1.0, 0.0, critical, more - 1) is None
    # No difference at all is shown once the interval fits into the margin.
    equal = seeds_that_show(0.0, 2.0, critical, 100)
    assert equal is not None and equal > few
