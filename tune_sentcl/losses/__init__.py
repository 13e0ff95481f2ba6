"""Losses as pure functions on embeddings, one file each."""

from tune_sentcl.losses.info_nce import info_nce
from tune_sentcl.losses.interactive import interactive
from tune_sentcl.losses.nt_xent import nt_xent, twin_losses
from tune_sentcl.losses.similarity import Similarity, check_temperature, pairwise_similarity
from tune_sentcl.losses.supervised_contrastive import supervised_contrastive

__all__ = [
    "Similarity",
    "check_temperature",
    "info_nce",
    "interactive",
    "nt_xent",
    "pairwise_similarity",
    "supervised_contrastive",
    "twin_losses",
]
