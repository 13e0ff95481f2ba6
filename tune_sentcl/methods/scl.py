"""SCL: cross-entropy and the supervised contrastive loss, interpolated by lambda."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from tune_sentcl.config import SclConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.losses import supervised_contrastive
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.candidates import draw_candidates
from tune_sentcl.methods.pairs import DrawnPairs, EncodedPairs, PairMethod
from tune_sentcl.shapes import Scalar


@dataclass(frozen=True)
class DrawnContrast:
    """A batch and its `Candidates` as tensors, on the host."""

    pairs: DrawnPairs
    anchors: Int[Tensor, " anchors"]
    positives: Bool[Tensor, "anchors rows"]
    negatives: Bool[Tensor, "anchors rows"]


class Scl(PairMethod[SclConfig]):
    """Method `scl` (Liao, arXiv 2106.04791, eq. 3): (1 - lambda) L_CE + lambda L_SCL."""

    def draw(self, batch: Batch, generator: np.random.Generator) -> DrawnContrast:
        """The pairs as tokens; the generator draws positives and negatives."""
        pairs = self.draw_pairs(batch)
        candidates = draw_candidates(
            pairs.premises,
            pairs.labels,
            generator,
            num_positives=self.config.num_positives,
            num_negatives=self.config.num_negatives,
            anchors=self.config.anchors,
        )
        parts = (candidates.anchors, candidates.positives, candidates.negatives)
        return DrawnContrast(pairs, *map(self.pinned, parts))

    def loss_of(self, drawn: DrawnContrast) -> StepLoss:
        """The weighted sum of both terms over the batch."""
        pairs = self.encode(drawn.pairs)
        entropy = self.cross_entropy(pairs)
        contrast = self._contrast(pairs, drawn)
        weight = self.config.lambda_
        total = (1 - weight) * entropy + weight * contrast
        return StepLoss(total, {"cross_entropy": entropy, "contrastive": contrast})

    def _contrast(self, pairs: EncodedPairs, drawn: DrawnContrast) -> Scalar:
        if not len(drawn.anchors):
            # Without an anchor the loss is 0; the authors' code divides 0 by 0 in this case.
            return pairs.u.new_zeros(())
        losses = supervised_contrastive(
            pairs.u.index_select(0, self.to_device(drawn.anchors)),
            pairs.v,
            self.to_device(drawn.positives),
            self.to_device(drawn.negatives),
            temperature=self.config.temperature,
            similarity=self.config.similarity,
        )
        return losses.mean()


METHOD = Scl
