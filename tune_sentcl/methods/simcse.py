"""Unsupervised SimCSE: a sentence's positive is the same sentence under another dropout mask."""

import numpy as np

from tune_sentcl.config import SimcseConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.losses import info_nce
from tune_sentcl.methods.base import Method, MethodInputs, StepLoss, embed
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.modules import TanhHead
from tune_sentcl.model.tokens import Tokens


class Simcse(Method[SimcseConfig, Encoder]):
    """Method `simcse` (Gao et al., EMNLP 2021), the baseline of the ConIsI paper.

    One forward pass encodes both copies of a sentence. The head (Linear, tanh) is not used at
    test.
    """

    def __init__(self, config: SimcseConfig, encoder: Encoder, inputs: MethodInputs) -> None:
        super().__init__(config, encoder, inputs)
        self.heads = TanhHead(encoder.width, inputs.generator)

    def draw(self, batch: Batch, generator: np.random.Generator) -> Tokens:
        """All sentences, then all sentences again; no random draws."""
        once = self.tokens(batch.corpus).take("text", batch.rows)
        return Tokens.concatenate([once, once])

    def loss_of(self, drawn: Tokens) -> StepLoss:
        """The contrastive loss of the two copies."""
        first, second = self.heads(embed(self.encoder, drawn, self.config.chunk)).chunk(2)
        loss = info_nce(first, second, temperature=self.config.temperature).mean()
        return StepLoss(loss, {"contrastive": loss})


METHOD = Simcse
