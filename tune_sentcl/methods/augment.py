"""SCL's augmented baseline: cross-entropy on the batch and on the pairs that SCL would draw."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from tune_sentcl.config import AugmentConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.candidates import draw_candidates
from tune_sentcl.methods.pairs import EncodedPairs, PairMethod
from tune_sentcl.shapes import Scalar

_LABELS = {"neutral": 1, "contradiction": 2}


class Augment(PairMethod[AugmentConfig]):
    """Method `augment`: (1 - lambda) CE(batch) + lambda CE(drawn pairs), lambda one half.

    The authors left no code for it. The pairs are the anchors' premises with the hypotheses that
    SCL would draw as positives (entailment) and negatives: those of the same premise keep their
    label, those of another premise are labeled by `cross_premise_label`.
    """

    coupled_terms = frozenset({"augmented"})

    @property
    def coupling(self) -> str | None:
        """The pairs are drawn from the batch; with lambda 0 they do not count."""
        if self.config.lambda_ > 0:
            return "pairs are drawn among the rows of a batch, unless method.lambda is 0"
        return super().coupling

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """Both cross-entropies; the generator draws the pairs."""
        pairs = self.encode(batch)
        own = self.cross_entropy(pairs)
        drawn = self._drawn(pairs, generator)
        weight = self.config.lambda_
        return StepLoss(
            (1 - weight) * own + weight * drawn, {"cross_entropy": own, "augmented": drawn}
        )

    def _drawn(self, pairs: EncodedPairs, generator: np.random.Generator) -> Scalar:
        labels = pairs.labels.cpu().numpy()
        drawn = draw_candidates(
            pairs.premises,
            labels,
            generator,
            num_positives=self.config.num_positives,
            num_negatives=self.config.num_negatives,
        )
        anchor, row = np.nonzero(drawn.positives | drawn.negatives)
        if not len(anchor):
            return pairs.u.new_zeros(())
        premise = drawn.anchors[anchor]
        same = pairs.premises[premise] == pairs.premises[row]
        drawn_labels = np.where(same, labels[row], _LABELS[self.config.cross_premise_label])
        device = pairs.u.device
        logits = self.heads(
            pairs.u.index_select(0, torch.from_numpy(premise).to(device)),
            pairs.v.index_select(0, torch.from_numpy(row).to(device)),
        )
        return cross_entropy(logits, torch.from_numpy(drawn_labels).to(device))


METHOD = Augment
