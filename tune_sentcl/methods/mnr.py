"""Multiple negatives ranking: contrast each anchor's positive with the batch and negatives."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tune_sentcl.config import MnrConfig
from tune_sentcl.losses import info_nce
from tune_sentcl.methods.base import MethodInputs, StepLoss
from tune_sentcl.methods.embedding_losses import DrawnTriplets, TripletMethod, Triplets
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.modules import Tail, TanhHead, dense, normal_linear
from tune_sentcl.shapes import Embeddings


class Mnr(TripletMethod[MnrConfig]):
    """Method `mnr` (Henderson et al. 2017; van den Oord et al. 2018).

    On NLI triplets with `head = "kept"` this is supervised SimCSE (Gao et al., EMNLP 2021,
    eq. 5). Its alpha is `negative_weight`.
    """

    def __init__(self, config: MnrConfig, encoder: Encoder, inputs: MethodInputs) -> None:
        super().__init__(config, encoder, inputs)
        if config.head == "dropped":
            self.heads = TanhHead(encoder.width, inputs.generator)
        elif config.head == "kept":
            layer = normal_linear(encoder.width, encoder.width, inputs.generator)
            encoder.tail = Tail(*encoder.tail, dense(layer, "Tanh"))

    def loss_of(self, drawn: DrawnTriplets) -> StepLoss:
        """The contrastive loss over the batch."""
        return self.embedded(drawn, self._contrast)

    def head(self, embeddings: Embeddings) -> Embeddings:
        """The output of the head that is dropped at test, if there is one."""
        transformed: Embeddings = self.heads(embeddings)
        return transformed

    def _contrast(self, triplets: Triplets) -> StepLoss:
        temperature = self.config.temperature
        loss = info_nce(
            triplets.anchors,
            torch.cat([triplets.positives, triplets.negatives]),
            temperature=temperature,
            bias=self._weights(triplets),
        ).mean()
        if self.config.symmetric:
            back = info_nce(triplets.positives, triplets.anchors, temperature=temperature).mean()
            loss = (loss + back) / 2
        return StepLoss(loss, {"contrastive": loss})

    def _weights(self, triplets: Triplets) -> Float[Tensor, "rows candidates"] | None:
        """The log weight of each candidate: SimCSE's alpha for a row's own negatives, else 0."""
        if self.config.negative_weight == 1 or not len(triplets.owners):
            return None
        rows = torch.arange(len(triplets.anchors), device=triplets.owners.device)
        own = (rows[:, None] == triplets.owners[None, :]).to(torch.float32)
        log = math.log(self.config.negative_weight)
        return torch.cat([own.new_zeros(len(rows), len(rows)), log * own], dim=1)


METHOD = Mnr
