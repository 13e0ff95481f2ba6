"""CoSENT: sentence pairs in the order in which people find them similar."""

import numpy as np
import torch

from tune_sentcl.config import CosentConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.losses.cosent import cosent
from tune_sentcl.methods.base import Method, StepLoss
from tune_sentcl.model.encoder import Encoder


class Cosent(Method[CosentConfig, Encoder]):
    """Method `cosent` (Su 2022): no head, one loss on pairs with a similarity."""

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """The order of the batch's pairs; draws from the encoder's dropout alone."""
        ids = self.encoder.tokenize([*batch.texts("sentence1"), *batch.texts("sentence2")])
        left, right = self.encoder(ids).chunk(2)
        scores = torch.from_numpy(batch.numbers("score")).to(left)
        loss = cosent(left, right, scores, temperature=self.config.temperature)
        return StepLoss(loss, {"cosent": loss})


METHOD = Cosent
