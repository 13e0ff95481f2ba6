"""Losses as pure functions of embeddings, one file each."""

from tune_sentcl.losses.angle import angle
from tune_sentcl.losses.cosent import cosent
from tune_sentcl.losses.guided import guided, guided_similarities
from tune_sentcl.losses.info_nce import info_nce
from tune_sentcl.losses.interactive import interactive
from tune_sentcl.losses.nt_xent import nt_xent
from tune_sentcl.losses.similarity import Similarity, check_temperature, pairwise_similarity
from tune_sentcl.losses.supervised_contrastive import supervised_contrastive
from tune_sentcl.losses.triplet import triplet

__all__ = [
    "Similarity",
    "angle",
    "check_temperature",
    "cosent",
    "guided",
    "guided_similarities",
    "info_nce",
    "interactive",
    "nt_xent",
    "pairwise_similarity",
    "supervised_contrastive",
    "triplet",
]
