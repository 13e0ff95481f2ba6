"""Logistic regressions on many subsets of the same rows, all fitted at once.

The objective is scikit-learn's: `C` times the sum of the log losses plus half the squared length
of the weights, without the intercepts. Two classes share one vector of weights; more classes have
one vector each. The objective is convex with one minimum, so the result does not depend on the
solver.

The folds of a cross-validation share most of their rows, so their solutions and curvatures are
close. Each `C` is therefore solved once on all rows, weighted by how many folds train on them. All
folds start there and take Newton steps together. Conjugate gradients solve each step, with one
wide matrix product over all folds. The preconditioner is the curvature at the start; for more than
two classes it leaves out the blocks between classes. The computation is in float32. If float32 is
not precise enough (features in the thousands), float64 repeats it.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor

from tune_sentcl.errors import NonFiniteError

Rows = Float[Tensor, "rows inputs"]
"""Centered features, then a column of ones."""
Weights = Float[Tensor, "inputs scores fits"]
"""One score for two classes, else one per class; the last input belongs to the intercept."""
Start = Float[Tensor, "inputs scores 1"]
Logits = Float[Tensor, "rows scores fits"]
Importance = Float[Tensor, "rows fits"]
"""The weight of each row's loss in each fit; 0 for held-out rows."""
Inverses = Float[Tensor, "scores inputs inputs"]
PerFit = Float[Tensor, " fits"]

_TOLERANCE = 1e-4  # the distance to the minimum, as a share of the weights' length
_START_TOLERANCE = 3e-2
# A change of the objective by a smaller share than this is hidden by rounding.
_RESOLUTION = 1e-11
# The linear solve of a Newton step ends when the residual has shrunk to this share.
_FORCING = 0.2
_NEWTON_STEPS = 50
_CG_STEPS = 200
_HALVINGS = 20
_BLOCK = 2**24  # the largest number of logits computed at a time


class _StalledError(ArithmeticError):
    pass


class LogisticFits:
    """Many logistic regressions on the same rows."""

    def __init__(
        self,
        features: Float32[np.ndarray, "rows dim"],
        labels: Int[np.ndarray, " rows"],
        device: str = "cpu",
        precision: torch.dtype = torch.float32,
    ) -> None:
        """Center the features, which saves digits and changes no fit.

        Features are finite; classes are numbered from 0 without a gap.
        """
        self._examples = features, labels
        self._device, self._precision = device, precision
        self._mean = self._tensor(features.mean(axis=0, dtype=np.float64).astype(np.float32))
        self.rows = self.to_device(features)
        classes = np.arange(labels.max() + 1)
        scored = classes if len(classes) > 2 else classes[1:]
        self._targets: Logits = self._tensor(labels[:, None] == scored)[:, :, None]
        self._penalized = self.rows.new_ones(self.rows.shape[1], 1, 1)
        self._penalized[-1] = 0

    def to_device(self, features: Float32[np.ndarray, "rows dim"]) -> Rows:
        """Bring other rows into the form of `rows`: on the device, centered, with a last 1."""
        augmented = self._mean.new_ones(len(features), features.shape[1] + 1)
        torch.sub(self._tensor(features), self._mean, out=augmented[:, :-1])
        return augmented

    def path(
        self, masks: Bool[np.ndarray, "rows fits"], strengths: Sequence[float]
    ) -> Iterator[Weights]:
        """Train all fits, with one value of `C` after the other.

        Args:
            masks: Whether each row trains each fit; each fit needs a row of every class.
            strengths: Values of `C`; rising order is fastest.

        Yields:
            The weights of all fits, for each `C`.

        Raises:
            NonFiniteError: A fit did not converge.
        """
        done = 0
        try:
            for weights in self._path(masks, strengths):
                yield weights
                done += 1
        except _StalledError as error:
            if self._precision == torch.float64:
                most = float(self.rows.abs().max())
                raise NonFiniteError(
                    f"logistic regression with C = {strengths[done]} does not converge: "
                    f"features are up to {most:.3g} from their mean. Scale the features down"
                ) from error
            exact = LogisticFits(*self._examples, self._device, torch.float64)
            for weights in exact.path(masks, strengths[done:]):
                yield weights.to(self.rows)

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device, self._precision)

    def _path(
        self, masks: Bool[np.ndarray, "rows fits"], strengths: Sequence[float]
    ) -> Iterator[Weights]:
        counts = self._tensor(masks)
        mean = counts.mean(1, keepdim=True)
        start = self.rows.new_zeros(self.rows.shape[1], self._targets.shape[1], 1)
        inverses = self._inverses(start, strengths[0] * mean)
        block = max(1, _BLOCK // self._targets.numel())
        for strength in strengths:
            start = self._newton(strength * mean, start, inverses, _START_TOLERANCE)
            inverses = self._inverses(start, strength * mean)
            fits = [
                self._newton(strength * part, start, inverses, _TOLERANCE)
                for part in counts.split(block, 1)
            ]
            yield torch.cat(fits, 2)

    def predict(self, weights: Weights, rows: Rows) -> Int[np.ndarray, "rows fits"]:
        """The class of each row by each fit, from 0."""
        logits = _product(rows, weights)
        chosen = (logits > 0).squeeze(1) if logits.shape[1] == 1 else logits.argmax(1)
        classes: Int[np.ndarray, "rows fits"] = chosen.long().cpu().numpy()
        return classes

    def _newton(
        self, importance: Importance, start: Start, inverses: Inverses, tolerance: float
    ) -> Weights:
        fits = importance.shape[1]
        weights = start.expand(-1, -1, fits)
        logits = _product(self.rows, start).expand(-1, -1, fits)
        chances, gradient = self._gradient(weights, logits, importance)
        for _ in range(_NEWTON_STEPS):
            # The decrement bounds the squared distance to the minimum, because no curvature is
            # below 1: the penalty alone has curvature 1.
            decrement = _dots(gradient, _precondition(inverses, gradient))
            goal = tolerance**2 * _dots(weights[:-1], weights[:-1])
            goal += _RESOLUTION * importance.sum(0)
            excess = float((decrement / goal).max()) ** 0.5
            if excess <= 1:
                return weights
            if not math.isfinite(excess):
                break
            forcing = max(min(_FORCING, tolerance * excess), 0.5 / excess)
            step = self._newton_step(chances, gradient, importance, inverses, forcing)
            rise = _product(self.rows, step)
            # A step that would raise the objective is halved. Finished fits are left out, because
            # their steps consist of rounding errors.
            limit = torch.where(decrement > goal, -0.5 * _dots(gradient, step), torch.inf)
            size = torch.ones_like(limit)
            tried = weights + step, logits + rise
            chances, gradient = self._gradient(*tried, importance)
            for _ in range(_HALVINGS):
                climbs = _dots(gradient, step) > limit
                if not climbs.any():
                    break
                size = torch.where(climbs, size / 2, size)
                tried = torch.addcmul(weights, size, step), torch.addcmul(logits, size, rise)
                chances, gradient = self._gradient(*tried, importance)
            else:
                break
            weights, logits = tried
        raise _StalledError

    def _newton_step(
        self,
        chances: Logits,
        gradient: Weights,
        importance: Importance,
        inverses: Inverses,
        forcing: float,
    ) -> Weights:
        bend = chances * importance[:, None]
        if chances.shape[1] == 1:
            bend *= 1 - chances
        residual = -gradient
        direction = toward = _precondition(inverses, residual)
        norm = _dots(residual, toward)
        goal = forcing**2 * norm
        step = torch.zeros_like(gradient)
        for _ in range(_CG_STEPS):
            change = _product(self.rows, direction)
            if chances.shape[1] > 1:
                change -= (chances * change).sum(1, keepdim=True)
            bent = self._pull(change.mul_(bend)) + self._penalized * direction
            size = _ratio(norm, _dots(direction, bent))
            step += size * direction
            residual -= size * bent
            toward = _precondition(inverses, residual)
            norm, before = _dots(residual, toward), norm
            if (norm <= goal).all():
                break
            direction = toward + _ratio(norm, before) * direction
        return step

    def _gradient(
        self, weights: Weights, logits: Logits, importance: Importance
    ) -> tuple[Logits, Weights]:
        chances = _chances(logits)
        errors = (chances - self._targets).mul_(importance[:, None])
        return chances, self._pull(errors) + self._penalized * weights

    def _pull(self, errors: Logits) -> Weights:
        pulled: Weights = _product(self.rows.T, errors)
        # A row's errors sum to 0 over the classes. Subtracting the mean removes the rounding error
        # of this sum, because no penalty keeps the sum of the intercepts from drifting.
        return pulled if errors.shape[1] == 1 else pulled - pulled.mean(1, keepdim=True)

    def _inverses(self, weights: Weights, importance: Importance) -> Inverses:
        """The inverse of each score's curvature for one fit, without blocks between scores."""
        chances = _chances(_product(self.rows, weights))
        bend = (chances * (1 - chances) * importance[:, None])[:, :, 0]
        inverses = []
        for column in bend.T:
            curvature = sum(
                (part * bent[:, None]).T @ part
                for part, bent in zip(self.rows.split(8192), column.split(8192), strict=True)
            ).double()
            # The 1 is the penalty's curvature. The second term keeps rounding from making a
            # curvature negative.
            curvature.diagonal().add_(1 + 1e-6 * curvature.trace())
            inverses.append(
                torch.cholesky_inverse(torch.linalg.cholesky_ex(curvature).L).to(column)
            )
        return torch.stack(inverses)


def _precondition(inverses: Inverses, gradient: Weights) -> Weights:
    if len(inverses) == 1:
        return _product(inverses[0], gradient)
    scaled: Weights = (inverses @ gradient.transpose(0, 1)).transpose(0, 1)
    return scaled - scaled.mean(1, keepdim=True)


def _chances(logits: Logits) -> Logits:
    return logits.sigmoid() if logits.shape[1] == 1 else logits.softmax(1)


def _product(
    left: Float[Tensor, "outer inner"], right: Float[Tensor, "inner scores fits"]
) -> Float[Tensor, "outer scores fits"]:
    return (left @ right.flatten(1)).view(-1, *right.shape[1:])


def _dots(left: Weights, right: Weights) -> PerFit:
    return (left * right).sum((0, 1))


def _ratio(above: PerFit, below: PerFit) -> PerFit:
    return torch.where(below > 0, above / below, 0)
