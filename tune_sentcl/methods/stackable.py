"""What a method offers so that many of its trials train as lanes of one batched model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

Weights = Mapping[str, Float[Tensor, "lanes ..."]]
"""The weights of all lanes by the names that `Method` gives them: `encoder.NAME`, `heads.NAME`."""


class Stackable(ABC):
    """Beside `Method`: only layers behind frozen embeddings move, and a step draws nothing.

    Law: lane i of `lane_losses` is what `Method.loss` gives for its rows under its weights, and
    depends on no other lane. Weights that are zeros up to a larger width stay so: their gradient
    is 0.

    Attributes:
        lane_columns: The texts of a row whose frozen embeddings go in.
        lane_knobs: The method's knobs that are a number to the loss; lanes may differ in them.
        lane_widths: Those that are the width of a layer; lanes may differ in them too.
    """

    lane_columns: ClassVar[tuple[str, ...]]
    lane_knobs: ClassVar[tuple[str, ...]]
    lane_widths: ClassVar[tuple[str, ...]]

    @abstractmethod
    def lane_losses(
        self,
        weights: Weights,
        frozen: Float[Tensor, "lanes rows dim"],
        knobs: Mapping[str, Float[Tensor, "lanes 1 1"]],
    ) -> dict[str, Float[Tensor, " lanes"]]:
        """The loss of every lane's batch.

        Args:
            weights: Of the lanes, padded to one shape.
            frozen: The batches' frozen embeddings; those of a later column follow below.
            knobs: `lane_knobs`.

        Returns:
            `loss` and, as `loss.NAME`, its terms, under the names of the curves.
        """


def affine(
    inputs: Float[Tensor, "lanes rows dim"], weights: Weights, layer: str
) -> Float[Tensor, "lanes rows width"]:
    """Each lane's rows through its own linear layer, which has a bias."""
    weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
    found: Tensor = _Affine.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
    return found


class _Affine(torch.autograd.Function):
    """A linear layer a lane; gradients as torch takes those of one layer.

    Its own for many matrices would come transposed, and in another order of summands.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.mT)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        inputs, weight = ctx.saved_tensors
        (slope,) = slopes
        below = torch.bmm(slope, weight) if ctx.needs_input_grad[0] else None
        return below, torch.bmm(slope.mT, inputs), slope.sum(1)
