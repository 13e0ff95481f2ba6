"""Train many linear classifiers in batched matrix products, with separate trainings' results.

A fit has its own weights, optimizer state and early stop. Fits of one split differ in weight decay
and share every batch. Splits with equally many training rows also share the order of rows, because
SentEval seeds itself anew before each fit. The gradient of a linear layer is written out, so
autograd records nothing, and a step costs a few batched matrix products.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int
from torch import Tensor

_CACHED = 2**19
"""A gathered batch with at most this many numbers stays in a core's cache until its next use."""

Weights = Float32[Tensor, "splits outputs dim"]
Moments = tuple[Weights, Weights]
Rule = Callable[[Weights, Weights, Moments, int], None]
"""Updates weights in place, given their gradient, its two moments and the step's number."""


@dataclass(frozen=True)
class Recipe:
    """The training of a fit, and when it stops.

    Attributes:
        rule: The optimizer.
        batch: Rows per step; the last batch of a pass may be shorter.
        passes: Passes over the training rows in a round. After each round the development rows are
            scored; the weights of the best round are kept.
        patience: The number of rounds without improvement that the whole fit may have; one more
            stops it.
        limit: No round begins after more than this many passes.
    """

    rule: Rule
    batch: int
    passes: int
    patience: int
    limit: int


@dataclass(frozen=True)
class Problem:
    """The classification problem that all fits share.

    Attributes:
        features: One row per example; the last column is 1, for the bias.
        targets: The target outputs of each row.
        slope: Maps outputs and targets to the derivative of a row's loss by its outputs.
        judge: Maps the outputs of some rows to one score per fit; larger is better.
    """

    features: Float32[Tensor, "rows dim"]
    targets: Float32[Tensor, "rows classes"]
    slope: Callable[
        [
            Float32[Tensor, "splits classes decays batch"],
            Float32[Tensor, "splits classes 1 batch"],
        ],
        Float32[Tensor, "splits classes decays batch"],
    ]
    judge: Callable[
        [Float32[Tensor, "rows classes decays"], Int[Tensor, " rows"]], Float64[Tensor, " decays"]
    ]


@dataclass(frozen=True)
class Split:
    """The row numbers of the fits of one split.

    Attributes:
        train: Training rows.
        dev: Development rows, which decide when to stop.
        drawn: The length of the permutation that separated `train` and `dev`; 0 if none did. It
            was drawn from the fits' seed, so the random stream continues after it.
    """

    train: Int[np.ndarray, " train"]
    dev: Int[np.ndarray, " dev"]
    drawn: int = 0


@dataclass(frozen=True)
class Fitted:
    """The results of one split's fits.

    Attributes:
        best: Each fit's best score on the development rows.
        weights: Each fit's weights after the round with its best score.
        passes: The number of passes of each fit.
    """

    best: Float64[Tensor, " decays"]
    weights: Float32[Tensor, "decays classes dim"]
    passes: Int[Tensor, " decays"]


def with_bias(features: Float32[np.ndarray, "rows dim"], device: str) -> Float32[Tensor, "rows _"]:
    """Append the column of ones of `Problem.features`."""
    return torch.nn.functional.pad(torch.from_numpy(features).to(device), (0, 1), value=1.0)


def adam(weights: Weights, slope: Weights, moments: Moments, step: int) -> None:
    """The update of `torch.optim.Adam` with its defaults."""
    mean, square = moments
    mean.lerp_(slope, 1 - 0.9)
    square.mul_(0.999).addcmul_(slope, slope, value=1 - 0.999)
    scale = (square.sqrt() / (1 - 0.999**step) ** 0.5).add_(1e-8)
    weights.addcdiv_(mean, scale, value=-1e-3 / (1 - 0.9**step))


def rmsprop(weights: Weights, slope: Weights, moments: Moments, step: int) -> None:
    """The update of `torch.optim.RMSprop` with its defaults; it keeps one moment."""
    square, _ = moments
    square.mul_(0.99).addcmul_(slope, slope, value=1 - 0.99)
    weights.addcdiv_(slope, square.sqrt().add_(1e-8), value=-1e-2)


def fit_batched(
    problem: Problem,
    splits: Sequence[Split],
    decays: Float64[np.ndarray, "splits decays"],
    recipe: Recipe,
    seed: int,
) -> list[Fitted]:
    """Train one fit for each split and weight decay, with the results of separate trainings.

    The splits may overlap. One seed draws the first weights and every order, so the fits are not
    independent.
    """

    def fit(group: list[int]) -> list[tuple[int, Fitted]]:
        batch = _BatchedFits(problem, [splits[n] for n in group], decays[group], recipe, seed)
        return list(zip(group, batch.run(), strict=True))

    width = max(1, _CACHED // (recipe.batch * problem.features.shape[1]))
    groups = _of_one_size(splits, width if problem.features.is_cpu else len(splits))
    with _one_thread_each() as pool:
        fitted = dict(chain.from_iterable(pool.map(fit, groups)))
    return [fitted[number] for number in range(len(splits))]


@contextmanager
def _one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """A pool of threads in which each fit has one thread; its steps are too short to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


def _of_one_size(splits: Sequence[Split], width: int) -> Iterator[list[int]]:
    sizes: dict[tuple[int, int], list[int]] = {}
    for number, split in enumerate(splits):
        sizes.setdefault((len(split.train), split.drawn), []).append(number)
    for numbers in sizes.values():
        for start in range(0, len(numbers), width):
            yield numbers[start : start + width]


class _BatchedFits:
    """Fits whose splits have equally many training rows, and therefore the same order of rows."""

    def __init__(
        self,
        problem: Problem,
        splits: Sequence[Split],
        decays: Float64[np.ndarray, "splits decays"],
        recipe: Recipe,
        seed: int,
    ) -> None:
        self._problem, self._recipe = problem, recipe
        # NumPy's older generator, because SentEval uses it and the fits must draw the same
        # numbers.
        self._random = np.random.RandomState(seed)
        device = problem.features.device
        self._random.permutation(splits[0].drawn)
        self._train = torch.from_numpy(np.stack([split.train for split in splits])).to(device)
        self._dev = [torch.from_numpy(split.dev).to(device) for split in splits]
        self._classes, self._count = problem.targets.shape[1], decays.shape[1]
        first = _first_weights(self._classes, problem.features.shape[1], seed).to(device)
        # Outputs are ordered by class, then by weight decay: the softmax over classes then works
        # on long contiguous rows.
        self._weights = first.repeat_interleave(self._count, 0).repeat(len(splits), 1, 1)
        self._moments = torch.zeros_like(self._weights), torch.zeros_like(self._weights)
        decay = torch.from_numpy(decays).to(device, torch.float32)
        self._decay = decay.repeat(1, self._classes).unsqueeze(2)

    def run(self) -> list[Fitted]:
        """Train until every fit has stopped."""
        best = torch.full((len(self._dev), self._count), -1.0, dtype=torch.float64)
        kept = torch.zeros(len(best), self._classes, self._count, self._weights.shape[2])
        failures, passes = torch.zeros_like(best).long(), torch.zeros_like(best).long()
        alive, made = torch.arange(len(best)), 0
        while len(alive) and made <= self._recipe.limit:
            self._train_round(made)
            made += self._recipe.passes
            running = failures[alive] <= self._recipe.patience
            scores = self._judge(alive)
            better = running & (scores > best[alive])
            best[alive] = torch.where(better, scores, best[alive])
            weights = self._weights.view(len(alive), *kept.shape[1:]).cpu()
            kept[alive] = torch.where(better[:, None, :, None], weights, kept[alive])
            failures[alive] += running & ~better
            passes[alive] += self._recipe.passes * running
            alive = self._drop_stopped(alive, (failures[alive] <= self._recipe.patience).any(1))
        return [Fitted(*result) for result in zip(best, kept.transpose(1, 2), passes, strict=True)]

    def _train_round(self, made: int) -> None:
        rows = self._train.shape[1]
        step = made * -(-rows // self._recipe.batch)
        for _ in range(self._recipe.passes):
            order = torch.from_numpy(self._random.permutation(rows)).to(self._train.device)
            for batch in self._train[:, order].split(self._recipe.batch, dim=1):
                step += 1
                self._step(batch, step)

    def _step(self, batch: Int[Tensor, "splits batch"], step: int) -> None:
        problem, weights = self._problem, self._weights
        splits, size = batch.shape
        rows = batch.reshape(-1)
        features = problem.features.index_select(0, rows).view(splits, size, -1)
        targets = problem.targets.index_select(0, rows).view(splits, size, -1).mT.unsqueeze(2)
        outputs = torch.bmm(weights, features.mT).view(splits, self._classes, self._count, size)
        slope = problem.slope(outputs, targets).view(splits, -1, size)
        gradient = torch.baddbmm(self._decay * weights, slope, features, alpha=1 / size)
        self._recipe.rule(weights, gradient, self._moments, step)

    def _judge(self, alive: Int[Tensor, " alive"]) -> Float64[Tensor, "alive decays"]:
        scores = []
        for number, weights in zip(alive.tolist(), self._weights, strict=True):
            outputs = self._problem.features[self._dev[number]] @ weights.T
            outputs = outputs.view(-1, self._classes, self._count)
            scores.append(self._problem.judge(outputs, self._dev[number]))
        return torch.stack(scores).cpu()

    def _drop_stopped(
        self, alive: Int[Tensor, " alive"], running: Bool[Tensor, " alive"]
    ) -> Int[Tensor, " _"]:
        if not running.all():
            on = running.to(self._weights.device)
            self._train, self._weights = self._train[on], self._weights[on]
            self._moments = self._moments[0][on], self._moments[1][on]
            self._decay = self._decay[on]
        return alive[running]


def _first_weights(classes: int, dim: int, seed: int) -> Float32[Tensor, "classes dim"]:
    """The first weights of `torch.nn.Linear` after `torch.manual_seed(seed)`, the bias last."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(classes, dim - 1)
    torch.nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
    bound = 1 / (dim - 1) ** 0.5
    bias = torch.empty(classes).uniform_(-bound, bound, generator=generator)
    return torch.cat([weight, bias.unsqueeze(1)], dim=1)
