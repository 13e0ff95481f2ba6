"""Unsupervised SimCSE: a sentence finds its twin, the same sentence under other dropout."""

import numpy as np

from tune_sentcl.config import SimcseConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.losses import info_nce
from tune_sentcl.methods.base import Method, Setting, StepLoss
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.heads import TanhHead
from tune_sentcl.model.tokens import Tokens


class Simcse(Method[SimcseConfig, Encoder]):
    """Method `simcse` (Gao et al., EMNLP 2021), the baseline that ConIsI measures itself against.

    Both twins go through one forward pass. The head, Linear and tanh, is dropped at test.
    """

    def __init__(self, config: SimcseConfig, encoder: Encoder, setting: Setting) -> None:
        """Draw the head."""
        super().__init__(config, encoder, setting)
        self.heads = TanhHead(encoder.width, setting.generator)

    def draw(self, batch: Batch, generator: np.random.Generator) -> Tokens:
        """Every sentence, and every sentence again; draws nothing."""
        once = self.tokens(batch.corpus).take("text", batch.rows)
        return Tokens.concatenate([once, once])

    def loss_of(self, drawn: Tokens) -> StepLoss:
        """Contrast of the twins; draws from the encoder's dropout alone."""
        first, second = self.heads(self.encoder(drawn)).chunk(2)
        loss = info_nce(first, second, temperature=self.config.temperature).mean()
        return StepLoss(loss, {"contrastive": loss})


METHOD = Simcse
