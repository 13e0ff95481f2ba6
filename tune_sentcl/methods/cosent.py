"""CoSENT: sentence pairs in the order in which people find them similar."""

import numpy as np
from torch import Tensor

from tune_sentcl.config import CosentConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.losses.cosent import cosent
from tune_sentcl.methods.base import Method, StepLoss
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokens import Tokens


class Cosent(Method[CosentConfig, Encoder]):
    """Method `cosent` (Su 2022): no head, one loss on pairs with a similarity."""

    def draw(self, batch: Batch, generator: np.random.Generator) -> tuple[Tokens, Tensor]:
        """All first sentences and all second ones, and their scores; draws nothing."""
        tokens = self.tokens(batch.corpus)
        sides = (tokens.take(name, batch.rows) for name in ("sentence1", "sentence2"))
        return Tokens.concatenate(sides), self.staged(batch.numbers("score"))

    def loss_of(self, drawn: tuple[Tokens, Tensor]) -> StepLoss:
        """The order of the batch's pairs; draws from the encoder's dropout alone."""
        tokens, scores = drawn
        left, right = self.encoder(tokens).chunk(2)
        loss = cosent(left, right, self.placed(scores), temperature=self.config.temperature)
        return StepLoss(loss, {"cosent": loss})


METHOD = Cosent
