"""Methods, one file each: which sentences go in, which heads, which loss."""

from typing import assert_never

import torch

from tune_sentcl.config import AugmentConfig, SbertConfig, SclConfig, TrialConfig
from tune_sentcl.methods.augment import Augment
from tune_sentcl.methods.base import Method, PairBatch, StepLoss
from tune_sentcl.methods.sbert import Sbert
from tune_sentcl.methods.scl import Scl

__all__ = ["Method", "PairBatch", "StepLoss", "build_method"]


def build_method(config: TrialConfig, dim: int, generator: torch.Generator) -> Method:
    """Make the method that a config names; the only place that knows them all.

    Args:
        config: The trial.
        dim: Width of the encoder's embeddings.
        generator: Draws the heads' starting weights.
    """
    match config.method:
        case SbertConfig() as method:
            return Sbert(method, config.encoder, dim, generator)
        case SclConfig() as method:
            return Scl(method, config.encoder, dim, generator)
        case AugmentConfig() as method:
            return Augment(method, config.encoder, dim, generator)
        case _ as unknown:
            assert_never(unknown)
