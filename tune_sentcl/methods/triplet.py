"""Triplet loss: keep an anchor nearer to its positive than to its negatives, by a margin."""

import pyarrow.compute as pc
import torch

from tune_sentcl.config import TripletConfig
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.errors import DataError, Fault
from tune_sentcl.losses import triplet
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.embedding_losses import DrawnTriplets, TripletMethod, Triplets


class Triplet(TripletMethod[TripletConfig]):
    """Method `triplet` (Schroff et al., CVPR 2015; SBERT's triplet objective, section 3).

    A row's loss is the mean over its negatives, and 0 for a row without negatives.
    """

    @classmethod
    def check(cls, corpus: Corpus) -> None:
        """Raise DataError if a source has no row with a negative."""
        for part in corpus.by_source():
            if not any(pc.any(pc.not_equal(part.table[n], "")).as_py() for n in part.negatives()):
                rule = "method triplet needs examples with a negative, but there are none"
                move = (
                    "Use a source of triplets, mine negatives (data.mined=1), or use method mnr."
                )
                raise DataError(Fault(part.source, key="data.source", rule=rule, move=move))

    def loss_of(self, drawn: DrawnTriplets) -> StepLoss:
        """The mean loss over the rows."""
        return self.embedded(drawn, self._margins)

    def _margins(self, triplets: Triplets) -> StepLoss:
        owners = triplets.owners
        losses = triplet(
            triplets.anchors.index_select(0, owners),
            triplets.positives.index_select(0, owners),
            triplets.negatives,
            margin=self.config.margin,
            distance=self.config.distance,
        )
        rows = len(triplets.anchors)
        shares = torch.bincount(owners, minlength=rows).index_select(0, owners)
        loss = (losses / shares).sum() / rows
        return StepLoss(loss, {"triplet": loss})


METHOD = Triplet
