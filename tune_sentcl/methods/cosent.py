"""CoSENT: order sentence pairs by cosine as their similarity scores do."""

from jaxtyping import Float
from torch import Tensor

from tune_sentcl.config import CosentConfig
from tune_sentcl.losses import cosent
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.embedding_losses import GradedMethod
from tune_sentcl.shapes import Embeddings


class Cosent(GradedMethod[CosentConfig]):
    """Method `cosent` (Su 2022): one loss on pairs with a similarity score, without a head."""

    def compare(
        self, left: Embeddings, right: Embeddings, scores: Float[Tensor, " rows"]
    ) -> StepLoss:
        """The CoSENT loss of the pairs."""
        loss = cosent(left, right, scores, temperature=self.config.temperature)
        return StepLoss(loss, {"cosent": loss})


METHOD = Cosent
