"""What a method is: which sentences go in, which heads, which loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int
from torch import nn

from tune_sentcl.model.encoder import Encoder
from tune_sentcl.shapes import Scalar


@dataclass(frozen=True)
class PairBatch:
    """The rows of one step.

    Attributes:
        premises: One sentence a row.
        hypotheses: One sentence a row.
        labels: 0 entailment, 1 neutral, 2 contradiction.
    """

    premises: Sequence[str]
    hypotheses: Sequence[str]
    labels: Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class StepLoss:
    """What one step minimizes.

    Attributes:
        total: The loss, in nats.
        parts: Its terms before weighting, by name, for the curves.
    """

    total: Scalar
    parts: dict[str, Scalar]


@runtime_checkable
class Method(Protocol):
    """How an encoder is trained.

    Laws: `loss` draws all its chance from the generator and from the encoder's dropout; it never
    changes the batch; the heads are trained beside the encoder and play no part in evaluation.
    """

    @property
    def heads(self) -> nn.Module:
        """What is trained beside the encoder and dropped afterwards."""
        ...

    def loss(self, encoder: Encoder, batch: PairBatch, generator: np.random.Generator) -> StepLoss:
        """The loss of one batch under the encoder's present weights."""
        ...
