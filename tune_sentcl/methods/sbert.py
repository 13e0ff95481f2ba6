"""The SBERT baseline: cross-entropy of the pair classifier alone."""

import numpy as np
import torch

from tune_sentcl.config import EncoderConfig, SbertConfig
from tune_sentcl.methods.base import PairBatch, StepLoss
from tune_sentcl.methods.pairs import build_classifier, encode_pairs, pair_cross_entropy
from tune_sentcl.model.encoder import Encoder


class Sbert:
    """Method `sbert` (Reimers and Gurevych 2019; SCL's baseline, lambda 0)."""

    def __init__(
        self, config: SbertConfig, encoder: EncoderConfig, dim: int, generator: torch.Generator
    ) -> None:
        self.config = config
        self.share = encoder.share_duplicates
        self.heads = build_classifier(config, dim, generator)

    def loss(self, encoder: Encoder, batch: PairBatch, generator: np.random.Generator) -> StepLoss:
        """Cross-entropy over the batch; draws nothing from the generator."""
        pairs = encode_pairs(encoder, batch, share=self.share, divisor=self.config.divisor)
        loss = pair_cross_entropy(self.heads, pairs)
        return StepLoss(loss, {"cross_entropy": loss})
