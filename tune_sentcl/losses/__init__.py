"""Losses as pure functions on embeddings, one file each."""

from tune_sentcl.losses.similarity import Similarity, pairwise_similarity
from tune_sentcl.losses.supervised_contrastive import supervised_contrastive

__all__ = ["Similarity", "pairwise_similarity", "supervised_contrastive"]
