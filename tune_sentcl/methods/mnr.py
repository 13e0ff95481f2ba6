"""Multiple negatives ranking: contrast each anchor's positive with in-batch and hard negatives."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tune_sentcl.config import MnrConfig
from tune_sentcl.losses import info_nce
from tune_sentcl.losses.similarity import pairwise_similarity
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
        """Apply the head that is not used at test, if there is one."""
        transformed: Embeddings = self.heads(embeddings)
        return transformed

    def _contrast(self, triplets: Triplets) -> StepLoss:
        temperature = self.config.temperature
        documents = torch.cat([triplets.positives, triplets.negatives])
        further = self._further(triplets, documents)
        bias = self._bias(triplets, documents)
        loss = info_nce(
            triplets.anchors, documents, temperature=temperature, bias=bias, further=further
        ).mean()
        if self.config.symmetric and further is None:
            back = info_nce(triplets.positives, triplets.anchors, temperature=temperature).mean()
            loss = (loss + back) / 2
        return StepLoss(loss, {"contrastive": loss})

    def _further(self, triplets: Triplets, documents: Tensor) -> Tensor | None:
        """The further logits of `contrast_anchors` and `contrast_positives`, in one softmax."""
        config, blocks = self.config, []
        if not config.contrast_anchors and not config.contrast_positives:
            return None
        own = _own(triplets)
        if config.contrast_anchors:
            cosines = _cosines(triplets.anchors, triplets.anchors)
            blocks.append(cosines.masked_fill(own[:, : len(own)], -torch.inf))
        if config.contrast_positives:
            blocks.append(_cosines(triplets.positives, documents).masked_fill(own, -torch.inf))
        if config.symmetric:
            blocks.append(_cosines(triplets.positives, triplets.anchors))
        return torch.cat(blocks, dim=1) / config.temperature

    def _bias(
        self, triplets: Triplets, documents: Tensor
    ) -> Float[Tensor, "rows candidates"] | None:
        """The number added to each candidate's logit; 0 for the positive.

        `negative_weight` is SimCSE's alpha, whose logarithm is added for a row's own negatives.
        `hardness` is alpha of Lan et al., "LLaVE", 2025, eq. 5.
        """
        config = self.config
        if config.negative_weight == 1 and not config.hardness and config.false_margin is None:
            return None
        own = _own(triplets)
        negative = ~own
        negative[:, len(own) :] = True  # this marks every candidate but the row's positive
        bias = math.log(config.negative_weight) * (own & negative).to(torch.float32)
        if config.hardness or config.false_margin is not None:
            cosines = _cosines(triplets.anchors, documents).detach()
            hardened = {"all": negative, "in_batch": ~own, "own": own & negative}
            bias = bias + config.hardness * cosines * hardened[config.hardened]
            if config.false_margin is not None:
                false = cosines > cosines.diagonal()[:, None] + config.false_margin
                bias = bias.masked_fill(false & negative, -torch.inf)
        return bias


def _own(triplets: Triplets) -> Bool[Tensor, "rows candidates"]:
    """Whether each candidate is the row's positive or one of the row's negatives."""
    rows = torch.arange(len(triplets.anchors), device=triplets.anchors.device)
    return rows[:, None] == torch.cat([rows, triplets.owners])[None, :]


def _cosines(
    left: Embeddings, right: Float[Tensor, "candidates dim"]
) -> Float[Tensor, "rows candidates"]:
    return pairwise_similarity(left, right, "cosine")


METHOD = Mnr
