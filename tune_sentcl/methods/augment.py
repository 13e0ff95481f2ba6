"""SCL's augmented baseline: cross-entropy on the batch and on pairs drawn as SCL draws them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from tune_sentcl.config import AugmentConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.candidates import draw_candidates
from tune_sentcl.methods.pairs import DrawnPairs, EncodedPairs, PairMethod
from tune_sentcl.shapes import Scalar

_LABELS = {"neutral": 1, "contradiction": 2}


@dataclass(frozen=True)
class DrawnAugmented:
    """A batch and its drawn pairs, on the host.

    Attributes:
        pairs: The batch.
        premises: Batch row of each drawn pair's premise.
        hypotheses: Batch row of each drawn pair's hypothesis.
        labels: Label of each drawn pair.
    """

    pairs: DrawnPairs
    premises: Int[Tensor, " drawn"]
    hypotheses: Int[Tensor, " drawn"]
    labels: Int[Tensor, " drawn"]


class Augment(PairMethod[AugmentConfig]):
    """Method `augment`: (1 - lambda) CE(batch) + lambda CE(drawn pairs), lambda 0.5 by default.

    The authors published no code for this method. A drawn pair consists of an anchor's
    premise and a hypothesis that SCL would draw for this anchor, either as a positive (label
    entailment) or as a negative. A hypothesis of the same premise keeps its label. A hypothesis of
    another premise gets `cross_premise_label`.
    """

    def draw(self, batch: Batch, generator: np.random.Generator) -> DrawnAugmented:
        """The batch as tokens, and the drawn pairs."""
        pairs = self.draw_pairs(batch)
        drawn = draw_candidates(
            pairs.premises,
            pairs.labels,
            generator,
            num_positives=self.config.num_positives,
            num_negatives=self.config.num_negatives,
        )
        anchor, row = np.nonzero(drawn.positives | drawn.negatives)
        premise = drawn.anchors[anchor]
        same = pairs.premises[premise] == pairs.premises[row]
        labels = np.where(same, pairs.labels[row], _LABELS[self.config.cross_premise_label])
        return DrawnAugmented(pairs, *map(self.pinned, (premise, row, labels)))

    def loss_of(self, drawn: DrawnAugmented) -> StepLoss:
        """The weighted sum of the batch's cross-entropy and the drawn pairs' cross-entropy."""
        pairs = self.encode(drawn.pairs)
        own = self.cross_entropy(pairs)
        augmented = self._augmented(pairs, drawn)
        weight = self.config.lambda_
        return StepLoss(
            (1 - weight) * own + weight * augmented,
            {"cross_entropy": own, "augmented": augmented},
        )

    def _augmented(self, pairs: EncodedPairs, drawn: DrawnAugmented) -> Scalar:
        if not len(drawn.labels):
            return pairs.u.new_zeros(())
        logits = self.heads(
            pairs.u.index_select(0, self.to_device(drawn.premises)),
            pairs.v.index_select(0, self.to_device(drawn.hypotheses)),
        )
        return cross_entropy(logits, self.to_device(drawn.labels))


METHOD = Augment
