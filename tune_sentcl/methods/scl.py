"""SCL: cross-entropy and the supervised contrastive loss, interpolated by lambda."""

import numpy as np
import torch

from tune_sentcl.config import SclConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.losses import supervised_contrastive
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.candidates import draw_candidates
from tune_sentcl.methods.pairs import EncodedPairs, PairMethod
from tune_sentcl.shapes import Scalar


class Scl(PairMethod[SclConfig]):
    """Method `scl` (Liao, arXiv 2106.04791, eq. 3): (1 - lambda) L_CE + lambda L_SCL."""

    coupled_terms = frozenset({"contrastive"})

    @property
    def coupling(self) -> str | None:
        """The contrast with the batch; with lambda 0 there is none."""
        if self.config.lambda_ > 0:
            return "the contrastive loss compares the rows of a batch, unless method.lambda is 0"
        return super().coupling

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """Both terms over the batch; the generator draws positives and negatives."""
        pairs = self.encode(batch)
        entropy = self.cross_entropy(pairs)
        contrast = self._contrast(pairs, generator)
        weight = self.config.lambda_
        total = (1 - weight) * entropy + weight * contrast
        return StepLoss(total, {"cross_entropy": entropy, "contrastive": contrast})

    def _contrast(self, pairs: EncodedPairs, generator: np.random.Generator) -> Scalar:
        labels = pairs.labels.cpu().numpy()
        drawn = draw_candidates(
            pairs.premises,
            labels,
            generator,
            num_positives=self.config.num_positives,
            num_negatives=self.config.num_negatives,
            anchors=self.config.anchors,
        )
        if not len(drawn.anchors):
            return pairs.u.new_zeros(())  # the authors' code divides 0 by 0 here
        device = pairs.u.device
        losses = supervised_contrastive(
            pairs.u.index_select(0, torch.from_numpy(drawn.anchors).to(device)),
            pairs.v,
            torch.from_numpy(drawn.positives).to(device),
            torch.from_numpy(drawn.negatives).to(device),
            temperature=self.config.temperature,
            similarity=self.config.similarity,
        )
        return losses.mean()


METHOD = Scl
