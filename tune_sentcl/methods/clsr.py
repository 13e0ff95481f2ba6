"""CLSR: a small network learns from pairs of frozen embeddings that mean the same."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tune_sentcl.config import ClsrConfig
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.losses import nt_xent, pairwise_similarity, twin_losses
from tune_sentcl.methods.base import Method, Setting, StepLoss
from tune_sentcl.methods.stackable import Stackable, Weights, affine
from tune_sentcl.model.dense import ACTIVATIONS, Dense, Tail
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.heads import linear


class Clsr(Method[ClsrConfig, FrozenEncoder], Stackable):
    """Method `clsr` (Qiu, Ding and Chen, ICON 2021).

    The network e, Linear, ReLU, Linear, ReLU, stands behind the frozen encoder's pooling; its
    output is the embedding. The linear projection h, of the same width, is dropped at test. The
    encoder never runs in a step: its embeddings come from the cache.
    """

    smallest_batch = 2
    lane_columns: ClassVar[tuple[str, ...]] = ("sentence1", "sentence2")
    lane_knobs: ClassVar[tuple[str, ...]] = ("temperature",)
    lane_widths: ClassVar[tuple[str, ...]] = ("hidden", "width")

    def __init__(self, config: ClsrConfig, encoder: FrozenEncoder, setting: Setting) -> None:
        """Draw e and h."""
        super().__init__(config, encoder, setting)
        draws = setting.generator
        encoder.tail = Tail(
            Dense(linear(encoder.dim, config.hidden, draws), "relu"),
            Dense(
                linear(config.hidden, config.width, draws),
                "relu" if config.output_relu else "none",
            ),
        )
        self.heads = linear(config.width, config.width, draws)
        self._corpus: Corpus | None = None
        self._sides: list[NDArray[np.int64]] = []

    def draw(self, batch: Batch, generator: np.random.Generator) -> Tensor:
        """The pairs' frozen embeddings, read from the memory map that all trials share.

        Returns:
            Those of the first sentences, then those of the second ones; draws nothing.
        """
        if self._corpus is not batch.corpus:
            texts = (batch.corpus.texts(name) for name in self.lane_columns)
            self._sides = [self.encoder.locate(side) for side in texts]
            self._corpus = batch.corpus
        numbers = np.concatenate([side[batch.rows] for side in self._sides])
        return self.staged(self.encoder.cache.take(numbers))

    def loss_of(self, drawn: Tensor) -> StepLoss:
        """NT-Xent of the projected pairs; draws nothing."""
        projected = self.heads(self.encoder.tail(self.placed(drawn)))
        loss = nt_xent(*projected.chunk(2), temperature=self.config.temperature).mean()
        return StepLoss(loss, {"contrastive": loss})

    def lane_losses(
        self,
        weights: Weights,
        frozen: Float[Tensor, "lanes rows dim"],
        knobs: Mapping[str, Float[Tensor, "lanes 1 1"]],
    ) -> dict[str, Float[Tensor, " lanes"]]:
        """As `loss`, of many trials; a unit without weights is 0 behind ReLU, and to a cosine."""
        projected = frozen
        for place, layer in enumerate(self.encoder.tail.layers):
            summed = affine(projected, weights, f"encoder.tail.{place}.linear")
            projected = ACTIVATIONS[layer.activation][1](summed)
        projected = affine(projected, weights, "heads")
        cosines = pairwise_similarity(projected, projected, "cosine")
        loss = twin_losses(cosines / knobs["temperature"]).mean(dim=-1)
        return {"loss": loss, "loss.contrastive": loss}


METHOD = Clsr
