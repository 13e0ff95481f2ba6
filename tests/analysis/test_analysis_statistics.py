"""The statistics against formulas written out, and against simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from tune_sentcl.judging.statistics import (
    anytime_p_values,
    bootstrap_interval,
    confidence_sequence,
    differences,
    holm,
    log_evidence,
    mean,
    prediction_interval,
    sd,
    seeds_needed,
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


def test_seeds_are_paired_where_both_have_them() -> None:
    first = {0: 3.0, 1: 5.0, 2: 9.0, 7: 100.0}
    assert differences(first, {2: 4.0, 1: 1.0, 0: 1.0, 8: -50.0}) == ([2.0, 4.0, 5.0], True)
    # Two common seeds are all that the other has.
    assert differences(first, {1: 1.0, 2: 4.0}) == ([4.0, 5.0], True)
    # Too few are common: the seeds of each in their order, as many as both have.
    assert differences(first, {1: 1.0, 20: 2.0, 10: 4.0}) == ([2.0, 1.0, 7.0], False)
    assert differences(first, {}) == ([], True)


def test_evidence_is_the_likelihood_ratio_that_it_says() -> None:
    # By quadrature over the effect: the noncentral t's density against the central one's.
    values = [0.4, 1.9, 1.1, 0.2, 1.3]
    n, t = len(values), mean(values) / sd(values) * math.sqrt(len(values))
    effects = np.linspace(-40, 40, 20_001)
    prior = np.exp(-(effects**2) / 8) / math.sqrt(8 * math.pi)
    likelihood = stats.nct.pdf(t, n - 1, effects * math.sqrt(n))
    expected = np.trapezoid(prior * np.nan_to_num(likelihood), effects) / stats.t.pdf(t, n - 1)
    found = log_evidence(*(np.array(x) for x in (float(n), mean(values), sd(values))))
    assert math.exp(found) == pytest.approx(expected, rel=1e-4)


def test_evidence_of_too_few_or_equal_values() -> None:
    count, centre = np.array([1.0, 3.0, 3.0]), np.array([1.0, 0.0, 1.0])
    found = log_evidence(count, centre, np.array([math.nan, 0.0, 0.0]))
    assert found == pytest.approx([0.0, 0.0, math.log(13)])
    assert anytime_p_values(np.array([-1.0, 0.0, math.log(20)])) == pytest.approx([1.0, 1.0, 0.05])


def test_the_lasting_interval_ends_where_the_evidence_does() -> None:
    values = [1.0, 2.0, 3.0, 2.5, 1.2, 2.2]
    for alpha in (0.05, 0.01):
        for end in confidence_sequence(values, alpha):
            apart = np.array(mean(values) - end)
            found = log_evidence(np.array(6.0), apart, np.array(sd(values)))
            assert math.exp(found) == pytest.approx(1 / alpha)
    assert confidence_sequence(values[:3], 0.05) == (-math.inf, math.inf)
    assert confidence_sequence([], 0.05) == (-math.inf, math.inf)


def test_holm_corrects_the_smallest_most() -> None:
    assert holm(np.array([0.04, 0.01, 0.03])) == pytest.approx([0.06, 0.03, 0.06])
    assert holm(np.array([0.04, 0.01, 0.03]), 10) == pytest.approx([0.32, 0.1, 0.27])
    assert holm(np.array([0.5, 0.9])) == pytest.approx([1.0, 1.0])
    assert len(holm(np.array([]))) == 0


def test_the_bootstrap_covers_the_mean_of_few_seeds() -> None:
    draws = np.random.default_rng(1).normal(size=(400, 5))
    inside = sum(low <= 0 <= high for low, high in map(bootstrap_interval, draws.tolist()))
    assert inside / len(draws) > 0.9  # plain percentiles cover 83 % here
    assert bootstrap_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    assert math.isnan(bootstrap_interval([2.0])[0])
    assert bootstrap_interval([1.0, 2.0, 4.0]) == bootstrap_interval([1.0, 2.0, 4.0])


def test_seeds_are_asked_for_by_difference_and_variance() -> None:
    few = seeds_needed([4.0, 5.0, 4.5], 0.05, 100)
    more = seeds_needed([1.0, 2.0, 0.2], 0.05, 100)
    assert few is not None
    assert more is not None
    assert 4 <= few < more
    assert seeds_needed([1.0, 1.0, 1.0], 0.05, 100) == 4
    assert seeds_needed([0.0, 0.0, 0.0], 0.05, 100) is None
    assert seeds_needed([0.1, -0.2, 0.15], 0.05, 100) is None
    # What has to hold for many comparisons takes more seeds.
    corrected = seeds_needed([1.0, 2.0, 0.2], 0.05 / 190, 100)
    assert corrected is not None
    assert corrected > more
