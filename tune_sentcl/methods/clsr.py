"""CLSR: train a small network on the frozen embeddings of paraphrase pairs."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tune_sentcl.config import ClsrConfig
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.losses import nt_xent
from tune_sentcl.methods.base import Method, MethodInputs, StepLoss
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.modules import Tail, dense, linear


class Clsr(Method[ClsrConfig, FrozenEncoder]):
    """Method `clsr` (Qiu, Ding and Chen, ICON 2021).

    The network e (Linear, ReLU, Linear, ReLU) follows the frozen encoder's pooling. Its output is
    the embedding. The linear projection h has the same width and is not used at test. No step runs
    the encoder, because the frozen embeddings come from the cache.
    """

    smallest_batch = 2

    def __init__(self, config: ClsrConfig, encoder: FrozenEncoder, inputs: MethodInputs) -> None:
        super().__init__(config, encoder, inputs)
        draws = inputs.generator
        encoder.tail = Tail(
            dense(linear(encoder.dim, config.hidden, draws), "ReLU"),
            dense(
                linear(config.hidden, config.width, draws),
                "ReLU" if config.output_relu else "Identity",
            ),
        )
        self.heads = linear(config.width, config.width, draws)
        self._corpus: Corpus | None = None
        self._column_numbers: list[NDArray[np.int64]] = []

    def draw(self, batch: Batch, generator: np.random.Generator) -> Tensor:
        """The frozen embeddings of the first sentences, then of the second; no random draws.

        The embeddings come from a memory map that all trials share.
        """
        if self._corpus is not batch.corpus:
            texts = (batch.corpus.texts(name) for name in ("sentence1", "sentence2"))
            self._column_numbers = [self.encoder.locate(side) for side in texts]
            self._corpus = batch.corpus
        numbers = np.concatenate([side[batch.rows] for side in self._column_numbers])
        return self.pinned(self.encoder.cache.take(numbers))

    def loss_of(self, drawn: Tensor) -> StepLoss:
        """The NT-Xent loss of the projected pairs."""
        projected = self.heads(self.encoder.tail(self.to_device(drawn)))
        loss = nt_xent(*projected.chunk(2), temperature=self.config.temperature).mean()
        return StepLoss(loss, {"contrastive": loss})


METHOD = Clsr
