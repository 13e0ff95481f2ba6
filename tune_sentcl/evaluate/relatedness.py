"""SentEval's trained relatedness: a similarity from 0 or 1 to 5 (STS-B, SICK-R).

A score is spread over the two nearest whole numbers. A softmax over 1 to 5 learns the spread by
squared error, and its mean is the prediction. The dev rows' Pearson correlation stops the fit.
STS-B has scores below 1. As in SentEval, the part of a score that belongs to 0 is dropped, so a
score of 0 has an all-zero target.

Source: facebookresearch/SentEval, senteval/tools/relatedness.py and senteval/sick.py.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int
from torch import Tensor

from tune_sentcl.evaluate.batched_classifiers import (
    Problem,
    Recipe,
    Split,
    adam,
    fit_batched,
    with_bias,
)
from tune_sentcl.evaluate.splits import FOLD_SEED
from tune_sentcl.evaluate.sts import pearson, spearman

RECIPE = Recipe(adam, batch=64, passes=50, patience=3, limit=1000)
_NUMBERS = np.arange(1.0, 6.0)


@dataclass(frozen=True)
class Rated:
    """Sentence pairs with a score each.

    Attributes:
        features: One row per pair; SentEval's are |u - v| and u * v, joined.
        scores: The similarity of each pair, from 0 to 5.
    """

    features: Float32[np.ndarray, "rows dim"]
    scores: Float64[np.ndarray, " rows"]


@dataclass(frozen=True)
class Relatedness:
    """The result of a regression.

    Attributes:
        dev: Pearson x 100 on the dev rows; this correlation decided when the fit stopped.
        pearson: Pearson x 100 on the test rows.
        spearman: Spearman x 100 on the test rows.
        predictions: A score for each test row, from 1 to 5.
    """

    dev: float
    pearson: float
    spearman: float
    predictions: Float64[np.ndarray, " rows"]


def score_relatedness(
    train: Rated, dev: Rated, test: Rated, seed: int = FOLD_SEED, device: str = "cpu"
) -> Relatedness:
    """Train SentEval's regression, stop it by `dev`, and test it.

    `seed` draws the first weights and the orders of rows.

    Raises:
        NonFiniteError: The predictions or the scores of `dev` or `test` do not vary.
    """
    scores = np.concatenate([train.scores, dev.scores])

    def judge(
        outputs: Float32[Tensor, "rows 5 decays"], rows: Int[Tensor, " rows"]
    ) -> Float64[Tensor, " decays"]:
        gold = scores[rows.cpu().numpy()]
        predicted = [
            pearson(_expected(output), gold, "Pearson of dev") for output in outputs.unbind(2)
        ]
        return torch.tensor(predicted, dtype=torch.float64)

    problem = Problem(
        with_bias(np.concatenate([train.features, dev.features]), device),
        torch.from_numpy(_spread(scores)).to(device),
        _squared_error_slope,
        judge,
    )
    rows = np.arange(len(scores))
    split = Split(rows[: len(train.scores)], rows[len(train.scores) :])
    fitted = fit_batched(problem, [split], np.zeros((1, 1)), RECIPE, seed)[0]
    predicted = _expected(with_bias(test.features, "cpu") @ fitted.weights[0].T)
    return Relatedness(
        100 * float(fitted.best[0]),
        100 * pearson(predicted, test.scores, "Pearson of test"),
        100 * spearman(predicted, test.scores, "Spearman of test"),
        predicted,
    )


def _spread(scores: Float64[np.ndarray, " rows"]) -> Float32[np.ndarray, "rows 5"]:
    parts: Float64[np.ndarray, "rows 5"] = 1 - np.abs(scores[:, None] - _NUMBERS)
    return parts.clip(0).astype(np.float32)


def _expected(outputs: Float32[Tensor, "rows 5"]) -> Float64[np.ndarray, " rows"]:
    expected: Float64[np.ndarray, " rows"] = outputs.softmax(1).cpu().numpy() @ _NUMBERS
    return expected


def _squared_error_slope(
    outputs: Float32[Tensor, "splits classes decays batch"],
    targets: Float32[Tensor, "splits classes 1 batch"],
) -> Float32[Tensor, "splits classes decays batch"]:
    chances = outputs.softmax(1)
    slope = (chances - targets).mul_(2 / len(_NUMBERS))
    return slope.sub_((chances * slope).sum(1, keepdim=True)).mul_(chances)
