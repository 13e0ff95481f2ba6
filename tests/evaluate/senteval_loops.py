"""SentEval's classifier and regression as published: one fit after another, by autograd."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


class LoopClassifier:
    """The three designs, a fit at a time."""

    def __init__(self, protocol: Protocol, seed: int = 1111) -> None:
        self.protocol, self.seed = protocol, seed

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

    def nested(self, rows: Labeled, folds: int) -> Outcome:
        devs, tests, chosen = [], [], []
        predictions = np.zeros_like(rows.labels)
        for out_train, out_test in stratified(rows, folds):
            train, test = take(rows, out_train), take(rows, out_test)
            scores = [self._folds(train, folds, decay) for decay in DECAYS]
            outcome = self._chosen(scores, train, None, test)
            devs.append(outcome.dev)
            tests.append(outcome.test)
            chosen += outcome.chosen
            predictions[out_test] = outcome.predictions
        return Outcome(float(np.mean(devs)), float(np.mean(tests)), predictions, tuple(chosen))

    def folds_then_test(self, train: Labeled, test: Labeled, folds: int) -> Outcome:
        # KFoldClassifier draws folds of its own.
        scores = [self._folds(train, folds, decay, self.seed) for decay in DECAYS]
        return self._chosen(scores, train, None, test)

    def dev_then_test(self, train: Labeled, dev: Labeled, test: Labeled) -> Outcome:
        classes = int(train.labels.max()) + 1
        models = [self.fit(train, dev, decay, classes)[0].model for decay in DECAYS]
        return self._chosen([100 * score(model, dev) for model in models], train, dev, test)

    def _folds(self, train: Labeled, folds: int, decay: float, seed: int = 1111) -> float:
        classes = int(train.labels.max()) + 1
        scores = []
        for places, held in stratified(train, folds, seed):
            dev = take(train, held)
            loop, _ = self.fit(take(train, places), dev, decay, classes)
            scores.append(score(loop.model, dev))
        return 100 * float(np.mean(scores))

    def _chosen(
        self, scores: list[float], train: Labeled, dev: Labeled | None, test: Labeled
    ) -> Outcome:
        scores = [round(one, 2) for one in scores]
        decay = DECAYS[int(np.argmax(scores))]
        loop, _ = self.fit(train, dev, decay, int(train.labels.max()) + 1)
        reached = round(100 * score(loop.model, test), 2)
        return Outcome(max(scores), reached, predict(loop.model, test), (decay,))


def take(rows: Labeled, places: Rows) -> Labeled:
    return Labeled(rows.features[places], rows.labels[places])


def stratified(rows: Labeled, folds: int, seed: int = 1111) -> Iterator[tuple[Rows, Rows]]:
    split = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    yield from split.split(rows.features, rows.labels)


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
        lambda outputs, targets: nn.functional.mse_loss(outputs.softmax(1), targets),
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
