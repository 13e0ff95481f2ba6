"""AnglE: order pairs by their scores, with the angles of their embeddings in complex space."""

from jaxtyping import Float
from torch import Tensor

from tune_sentcl.config import AngleConfig
from tune_sentcl.losses import angle, cosent
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.embedding_losses import GradedMethod
from tune_sentcl.shapes import Embeddings


class Angle(GradedMethod[AngleConfig]):
    """Method `angle` (Li and Li, ACL 2024); `cosine_weight` above 0 adds CoSENT's loss.

    The paper's third term, a contrast within the batch, needs other rows; method `mnr` is that
    term.
    """

    def compare(
        self, left: Embeddings, right: Embeddings, scores: Float[Tensor, " rows"]
    ) -> StepLoss:
        """The AnglE loss of the pairs, plus the weighted CoSENT loss."""
        temperature, weight = self.config.temperature, self.config.cosine_weight
        loss = angle(left, right, scores, temperature=temperature)
        if not weight:
            return StepLoss(loss, {"angle": loss})
        by_cosine = cosent(left, right, scores, temperature=temperature)
        return StepLoss(loss + weight * by_cosine, {"angle": loss, "cosent": by_cosine})


METHOD = Angle
