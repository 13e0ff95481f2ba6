"""The SBERT baseline: only the cross-entropy of the pair classifier."""

import numpy as np

from tune_sentcl.config import SbertConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.pairs import DrawnPairs, PairMethod


class Sbert(PairMethod[SbertConfig]):
    """Method `sbert` (Reimers and Gurevych 2019; SCL's baseline, lambda 0)."""

    def draw(self, batch: Batch, generator: np.random.Generator) -> DrawnPairs:
        """The pairs as tokens; no random draws."""
        return self.draw_pairs(batch)

    def loss_of(self, drawn: DrawnPairs) -> StepLoss:
        """The cross-entropy over the batch."""
        loss = self.cross_entropy(self.encode(drawn))
        return StepLoss(loss, {"cross_entropy": loss})


METHOD = Sbert
