"""SentEval's classifier and regression as published: one fit after another, by autograd."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from tune_sentcl.evaluate.relatedness import Rated
from tune_sentcl.evaluate.splits import Labeled, Outcome

Protocol = Literal["10fold", "5fold"]
Rows = NDArray[np.int64]
Folds = Sequence[tuple[Rows, Rows]]
Predict = Callable[[Labeled], Rows]
Fit = Callable[[float, Labeled, Labeled | None], Predict]
DECAYS = [10**power for power in range(-5, -1)]


@dataclass
class Loop:
    """One linear layer, trained until its dev rows have failed often enough."""

    model: nn.Linear
    optimizer: torch.optim.Optimizer
    loss: Callable[[Tensor, Tensor], Tensor]
    random: np.random.RandomState
    batch: int
    passes: int
    patience: int
    limit: int
    made: int = 0

    def fit(self, x: Tensor, y: Tensor, judge: Callable[[nn.Linear], float]) -> float:
        best, kept, failures, stop = -1.0, self.model, 0, False
        while not stop and self.made <= self.limit:
            for _ in range(self.passes):
                self._one_pass(x, y)
            self.made += self.passes
            reached = judge(self.model)
            if reached > best:
                best, kept = reached, copy.deepcopy(self.model)
            else:
                stop = failures >= self.patience
                failures += 1
        self.model = kept
        return best

    def _one_pass(self, x: Tensor, y: Tensor) -> None:
        order = self.random.permutation(len(x))
        for start in range(0, len(x), self.batch):
            rows = torch.from_numpy(order[start : start + self.batch])
            loss = self.loss(self.model(x[rows]), y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def linear(inputs: int, outputs: int, seed: int) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(inputs, outputs)


class LoopDesigns:
    """The three designs around any fit: of a strength, rows to learn from, and dev rows."""

    def __init__(self, fit: Fit, grid: Sequence[float], seed: int = 1111) -> None:
        self.predictor, self.grid, self.seed = fit, grid, seed

    def nested(self, rows: Labeled, outer: Folds, inner: Callable[[Rows], Folds]) -> Outcome:
        devs, tests = [], []
        chosen: list[float] = []
        predictions = np.zeros_like(rows.labels)
        for places, held in outer:
            train, test = take(rows, places), take(rows, held)
            outcome = self._chosen(self._scan(train, inner(places)), train, None, test)
            devs.append(outcome.dev)
            tests.append(outcome.test)
            chosen += outcome.chosen
            predictions[held] = outcome.predictions
        return Outcome(float(np.mean(devs)), float(np.mean(tests)), predictions, tuple(chosen))

    def folds_then_test(self, train: Labeled, test: Labeled, folds: int) -> Outcome:
        # KFoldClassifier draws folds of its own.
        scores = self._scan(train, stratified(train, folds, self.seed))
        return self._chosen(scores, train, None, test)

    def dev_then_test(self, train: Labeled, dev: Labeled, test: Labeled) -> Outcome:
        scores = [accuracy(self.predictor(one, train, dev), dev) for one in self.grid]
        return self._chosen(scores, train, dev, test)

    def _scan(self, train: Labeled, folds: Folds) -> list[float]:
        pairs = [(take(train, places), take(train, held)) for places, held in folds]
        return [
            float(np.mean([accuracy(self.predictor(one, a, b), b) for a, b in pairs]))
            for one in self.grid
        ]

    def _chosen(
        self, scores: list[float], train: Labeled, dev: Labeled | None, test: Labeled
    ) -> Outcome:
        scores = [round(one, 2) for one in scores]
        strength = self.grid[int(np.argmax(scores))]
        predict = self.predictor(strength, train, dev)
        return Outcome(max(scores), round(accuracy(predict, test), 2), predict(test), (strength,))


class LoopClassifier(LoopDesigns):
    """SentEval's classifier, a fit at a time."""

    def __init__(self, protocol: Protocol, seed: int = 1111) -> None:
        super().__init__(self._predictor, DECAYS, seed)
        self.protocol = protocol

    def loop(self, dim: int, classes: int, decay: float) -> Loop:
        model, random = linear(dim, classes, self.seed), np.random.RandomState(self.seed)
        loss = nn.CrossEntropyLoss()
        if self.protocol == "10fold":
            adam = torch.optim.Adam(model.parameters(), weight_decay=decay)
            return Loop(model, adam, loss, random, 64, 4, 5, 200)
        rmsprop = torch.optim.RMSprop(model.parameters(), weight_decay=decay)
        return Loop(model, rmsprop, loss, random, 128, 2, 3, 200)

    def fit(
        self, train: Labeled, dev: Labeled | None, decay: float, classes: int
    ) -> tuple[Loop, float]:
        loop = self.loop(train.features.shape[1], classes, decay)
        if dev is None:
            order = loop.random.permutation(len(train.labels))
            held = int(0.05 * len(order))
            train, dev = take(train, order[held:]), take(train, order[:held])
        held_out = dev
        x, y = torch.from_numpy(train.features), torch.from_numpy(train.labels)
        return loop, loop.fit(x, y, lambda model: score(model, held_out))

    def _predictor(self, decay: float, train: Labeled, dev: Labeled | None) -> Predict:
        loop, _ = self.fit(train, dev, decay, int(train.labels.max()) + 1)
        return partial(predict, loop.model)


def take(rows: Labeled, places: Rows) -> Labeled:
    return Labeled(rows.features[places], rows.labels[places])


def stratified(rows: Labeled, folds: int, seed: int = 1111) -> Folds:
    split = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    return list(split.split(rows.features, rows.labels))


def accuracy(predict: Predict, rows: Labeled) -> float:
    return 100 * float((predict(rows) == rows.labels).mean())


def predict(model: nn.Linear, rows: Labeled) -> Rows:
    with torch.no_grad():
        classes: Rows = model(torch.from_numpy(rows.features)).argmax(1).numpy()
    return classes


def score(model: nn.Linear, rows: Labeled) -> float:
    return int((predict(model, rows) == rows.labels).sum()) / len(rows.labels)


def encode_score(value: float) -> list[float]:
    """SentEval's spread, spelled out: a bin below 1 does not exist."""
    below = int(np.floor(value))
    row = [0.0] * 7
    row[below] = below - value + 1
    row[below + 1] = value - below
    return row[1:6]


def loop_relatedness(
    train: Rated, dev: Rated, test: Rated, seed: int
) -> tuple[float, int, NDArray[np.float64]]:
    """Dev Pearson, passes made and the predictions for the test rows."""
    model = linear(train.features.shape[1], 5, seed)

    def expected(model: nn.Linear, rows: Rated) -> NDArray[np.float64]:
        with torch.no_grad():
            shares = model(torch.from_numpy(rows.features)).softmax(1).numpy()
        return np.asarray(shares @ np.arange(1, 6))

    loop = Loop(
        model,
        torch.optim.Adam(model.parameters()),
        lambda outputs, targets: nn.functional.mse_loss(outputs.softmax(1).double(), targets),
        np.random.RandomState(seed),
        batch=64,
        passes=50,
        patience=3,
        limit=1000,
    )
    best = loop.fit(
        torch.from_numpy(train.features),
        torch.tensor([encode_score(value) for value in train.scores]),
        lambda model: float(stats.pearsonr(expected(model, dev), dev.scores).statistic),
    )
    return best, loop.made, expected(loop.model, test)
