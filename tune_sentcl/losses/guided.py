"""The GIST loss: contrast within the batch, without candidates that a guide model excludes."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tune_sentcl.losses.similarity import check_temperature, pairwise_similarity
from tune_sentcl.shapes import Embeddings


def guided(
    cosines: Float[Tensor, "batch candidates"],
    left_out: Bool[Tensor, "batch candidates"],
    *,
    temperature: float,
) -> Float[Tensor, " batch"]:
    r"""Contrast each anchor's positive with the candidates that are not left out.

    With $c_{ik}$ the cosine of row i with candidate k, $c_{ii}$ that of the positive, and $K_i$
    the candidates of row i that are not left out,

    $$L_i = -c_{ii} / \tau + \log \sum_{k \in K_i} e^{c_{ik} / \tau}.$$

    Args:
        cosines: The cosines c, from `guided_similarities`.
        left_out: Mask of the candidates to exclude.
        temperature: Divides the cosines (tau), above 0.

    Returns:
        The loss of each anchor, in nats, unreduced.

    Raises:
        ValueError: The temperature is not above 0.

    References:
        Solatorio, "GISTEmbed", 2024, eqs. 1 to 4.
    """
    check_temperature(temperature)
    logits = cosines.masked_fill(left_out, -torch.inf) / temperature
    return torch.logsumexp(logits, dim=1) - logits.diagonal()


def guided_similarities(
    anchors: Embeddings,
    positives: Embeddings,
    negatives: Float[Tensor, "negatives dim"],
    *,
    contrast_anchors: bool,
    contrast_positives: bool,
) -> Float[Tensor, "batch candidates"]:
    """The cosines that GIST needs, from the embeddings of the trained model or of its guide model.

    Args:
        anchors: One embedding per row.
        positives: One embedding per row.
        negatives: The hard negatives of the batch, one embedding per row.
        contrast_anchors: Whether to compare the anchors with each other, too.
        contrast_positives: Whether to compare the positives with each other, too.

    Returns:
        Four blocks of columns: each anchor with all positives, with all negatives and with all
        anchors, then each positive with all positives.
    """
    blocks = [pairwise_similarity(anchors, torch.cat([positives, negatives]), "cosine")]
    if contrast_anchors:
        blocks.append(pairwise_similarity(anchors, anchors, "cosine"))
    if contrast_positives:
        blocks.append(pairwise_similarity(positives, positives, "cosine"))
    return torch.cat(blocks, dim=1)
