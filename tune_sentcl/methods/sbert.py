"""The SBERT baseline: cross-entropy of the pair classifier alone."""

import numpy as np

from tune_sentcl.config import SbertConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.pairs import PairMethod


class Sbert(PairMethod[SbertConfig]):
    """Method `sbert` (Reimers and Gurevych 2019; SCL's baseline, lambda 0)."""

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """Cross-entropy over the batch; draws nothing from the generator."""
        pairs = self.encode(batch)
        loss = self.cross_entropy(pairs)
        return StepLoss(loss, {"cross_entropy": loss})


METHOD = Sbert
