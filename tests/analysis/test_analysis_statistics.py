"""The statistics against formulas written out, and against simulations."""

import math

import numpy as np
import pytest

from tune_sentcl.analysis.statistics import mean, prediction_interval, sd


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
