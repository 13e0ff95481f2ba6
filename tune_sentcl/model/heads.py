"""What is trained on top of an encoder and dropped afterwards."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tune_sentcl.shapes import Embeddings

Activation = Literal["none", "relu", "tanh"]


class PairClassifier(nn.Module):
    """Entailment, neutral or contradiction, from a pair's features (u, v, |u - v|).

    Linear(3 dim, hidden), activation, Linear(hidden, 3), without dropout (SCL section 3). The
    authors have no activation, which makes the two layers one linear map in function.
    """

    def __init__(
        self, dim: int, hidden: int, activation: Activation, generator: torch.Generator
    ) -> None:
        """Draw the weights.

        Args:
            dim: Width of the embeddings.
            hidden: Width of the hidden layer.
            activation: What stands between the layers.
            generator: On the CPU; the only source of chance, torch's global one stays as it is.
        """
        super().__init__()
        self.layers = nn.Sequential(
            _linear(3 * dim, hidden, generator),
            {"none": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh}[activation](),
            _linear(hidden, 3, generator),
        )

    def forward(self, u: Embeddings, v: Embeddings) -> Float[Tensor, "batch 3"]:
        """Score pairs.

        Args:
            u: The premises' embeddings.
            v: The hypotheses' embeddings, row by row.

        Returns:
            Unnormalized log-probabilities of entailment, neutral and contradiction.
        """
        scores: Tensor = self.layers(torch.cat([u, v, (u - v).abs()], dim=1))
        return scores


def _linear(fan_in: int, fan_out: int, generator: torch.Generator) -> nn.Linear:
    # torch.nn.Linear's own distribution and order of draws, from a generator of ours.
    layer = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
