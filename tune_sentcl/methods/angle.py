"""AnglE: pairs in the order of their scores, by their angles in complex space."""

from jaxtyping import Float
from torch import Tensor

from tune_sentcl.config import AngleConfig
from tune_sentcl.losses import angle, cosent
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.embedding_losses import GradedMethod
from tune_sentcl.shapes import Embeddings


class Angle(GradedMethod[AngleConfig]):
    """Method `angle` (Li and Li, ACL 2024), with CoSENT's loss beside it where that has a weight.

    The paper's third term, contrast with the batch, reads other rows; `mnr` is that term.
    """

    def compare(
        self, left: Embeddings, right: Embeddings, scores: Float[Tensor, " rows"]
    ) -> StepLoss:
        """The order of the batch's pairs, by angle and by cosine."""
        temperature, weight = self.config.temperature, self.config.cosine_weight
        loss = angle(left, right, scores, temperature=temperature)
        if not weight:
            return StepLoss(loss, {"angle": loss})
        beside = cosent(left, right, scores, temperature=temperature)
        return StepLoss(loss + weight * beside, {"angle": loss, "cosent": beside})


METHOD = Angle
