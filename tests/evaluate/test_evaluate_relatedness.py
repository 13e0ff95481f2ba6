"""The trained regression against autograd in a loop, and its refusals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from senteval_loops import encode_score, loop_relatedness

from tune_sentcl.errors import DataError, NonFiniteError
from tune_sentcl.evaluate.relatedness import Rated, _spread, score_relatedness


def _pairs(count: int, seed: int) -> Rated:
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, 6)).astype(np.float32)
    truth = features @ np.linspace(-1, 1, 6) + 0.7 * generator.standard_normal(count)
    return Rated(features, np.clip(2.7 + truth, 0, 5).round(1))


def test_equals_the_loop() -> None:
    train, dev, test = (_pairs(n, n) for n in (70, 40, 30))
    found = score_relatedness(train, dev, test, seed=7)
    best, _, predictions = loop_relatedness(train, dev, test, seed=7)
    assert found.predictions == pytest.approx(predictions, abs=1e-4)
    assert found.dev == pytest.approx(100 * best, abs=1e-3)
    expected = 100 * stats.pearsonr(predictions, test.scores).statistic
    assert found.pearson == pytest.approx(expected, abs=1e-3)
    expected = 100 * stats.spearmanr(predictions, test.scores).statistic
    assert found.spearman == pytest.approx(expected, abs=0.1)


def test_spread_is_senteval_s_even_below_one() -> None:
    scores = np.array([0, 0.25, 0.8, 1, 1.5, 2.75, 3.999, 4, 4.2, 5])
    assert _spread(scores) == pytest.approx(np.array([encode_score(x) for x in scores]), abs=1e-6)


def test_bad_inputs_are_named_together() -> None:
    good = _pairs(20, 0)
    holed, high = good.features.copy(), good.scores.copy()
    holed[3, 1], high[5] = np.nan, 5.5
    with pytest.raises(DataError) as caught:
        score_relatedness(replace(good, features=holed), replace(good, scores=high), good)
    first, second = caught.value.faults
    assert (first.key, first.value) == ("train", "row 3")
    assert (second.key, second.value) == ("dev", "5.5")
    narrow = replace(good, features=good.features[:, :4])
    with pytest.raises(DataError, match=r"test = 20 rows of width 4 .*width 6"):
        score_relatedness(good, good, narrow)
    single = Rated(good.features[:1], good.scores[:1])
    with pytest.raises(DataError, match="dev = 1 rows of width 6 with 1 scores"):
        score_relatedness(good, single, good)


def test_scores_that_do_not_vary_have_no_correlation() -> None:
    good = _pairs(20, 0)
    flat = replace(good, scores=np.full(20, 3.0))
    with pytest.raises(NonFiniteError, match="Pearson of dev"):
        score_relatedness(good, flat, good)
