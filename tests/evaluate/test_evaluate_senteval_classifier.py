"""Fits trained together against fits one at a time: weights, stops, and the three designs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from senteval_loops import LoopClassifier, Protocol, score, stratified, take

from tune_sentcl.evaluate import batched_classifiers
from tune_sentcl.evaluate.batched_classifiers import Split, fit_batched
from tune_sentcl.evaluate.senteval_classifier import (
    RECIPES,
    SentEvalClassifier,
    _held_out,
    _problem,
)
from tune_sentcl.evaluate.splits import Labeled, Outcome


def _rows(count: int, classes: int, seed: int, dim: int = 9) -> Labeled:
    """Overlapping clouds, so that no fit is perfect and the decays differ."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    centers = 1.2 * np.random.default_rng(99).standard_normal((classes, dim))
    features = centers[labels] + 2 * generator.standard_normal((count, dim))
    return Labeled(features.astype(np.float32), labels)


@pytest.mark.parametrize(("protocol", "seed"), [("10fold", 3), ("5fold", 1111)])
def test_held_out_rows_are_the_toolkits(protocol: Protocol, seed: int) -> None:
    rows, decays = _rows(197, 3, 7), np.array([[1e-3], [1e-2]])
    # 180 rows hold 9 out and 179 hold 8 out: as many are left, yet in another order.
    parts = [np.arange(180), np.arange(10, 189)]
    splits = [_held_out(part, seed) for part in parts]
    assert [len(split.train) for split in splits] == [171, 171]
    found = fit_batched(_problem(rows, "cpu"), splits, decays, RECIPES[protocol], seed)
    for part, decay, fitted in zip(parts, decays[:, 0], found, strict=True):
        loop, _ = LoopClassifier(protocol, seed).fit(take(rows, part), None, decay, 3)
        assert int(fitted.passes[0]) == loop.made
        assert torch.allclose(fitted.weights[0, :, :-1], loop.model.weight, atol=1e-4)


def _same(found: Outcome, expected: Outcome) -> None:
    assert found.dev == pytest.approx(expected.dev, abs=1e-9)
    assert found.test == pytest.approx(expected.test, abs=1e-9)
    assert found.chosen == expected.chosen
    assert found.predictions.tolist() == expected.predictions.tolist()


PROTOCOLS = pytest.mark.parametrize(("protocol", "seed"), [("10fold", 2), ("5fold", 1111)])


@PROTOCOLS
def test_the_designs_are_the_loops(protocol: Protocol, seed: int) -> None:
    train, dev, test = _rows(160, 5, 1), _rows(60, 5, 2), _rows(70, 5, 3)
    fast, slow = SentEvalClassifier(protocol, seed), LoopClassifier(protocol, seed)
    _same(fast.folds_then_test(train, test, 3), slow.folds_then_test(train, test, 3))
    _same(fast.dev_then_test(train, dev, test), slow.dev_then_test(train, dev, test))
    rows = _rows(152, 2, 4)
    loop = slow.nested(rows, stratified(rows, 3), lambda train: stratified(take(rows, train), 3))
    _same(fast.nested(rows, 3), loop)


def test_neither_company_nor_threads_change_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, threads = _rows(120, 3, 0), torch.get_num_threads()
    expected = SentEvalClassifier("5fold").nested(rows, 4)
    monkeypatch.setattr(batched_classifiers, "_CACHED", 1)  # one split at a time
    torch.set_num_threads(3)
    try:
        _same(SentEvalClassifier("5fold").nested(rows, 4), expected)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def test_no_round_begins_beyond_the_limit() -> None:
    rows = _rows(150, 3, 6)
    split = Split(np.arange(100), np.arange(100, 150))
    recipe = replace(RECIPES["10fold"], patience=1000, limit=12)
    fitted = fit_batched(_problem(rows, "cpu"), [split], np.array([[1e-3]]), recipe, 1111)[0]
    slow = LoopClassifier("10fold").loop(9, 3, 1e-3)
    slow.patience, slow.limit = 1000, 12
    train, dev = take(rows, split.train), take(rows, split.dev)
    tensors = torch.from_numpy(train.features), torch.from_numpy(train.labels)
    slow.fit(*tensors, lambda model: score(model, dev))
    assert int(fitted.passes[0]) == slow.made == 16


def test_global_chance_is_neither_read_nor_moved() -> None:
    rows = _rows(90, 2, 0)
    before = torch.get_rng_state()
    first = SentEvalClassifier("5fold").nested(rows, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    _same(SentEvalClassifier("5fold").nested(rows, 3), first)


@pytest.mark.gpu
def test_an_accelerator_agrees() -> None:
    rows = _rows(152, 3, 4)
    found = SentEvalClassifier("10fold", device="cuda").nested(rows, 3)
    assert found.test == pytest.approx(SentEvalClassifier("10fold").nested(rows, 3).test, abs=1.5)
