"""InfoNCE, the contrastive loss of SimCSE and ConIsI."""

import torch
from jaxtyping import Float
from torch import Tensor

from tune_sentcl.losses.similarity import Similarity, check_temperature, pairwise_similarity
from tune_sentcl.shapes import Embeddings


def info_nce(
    anchors: Embeddings,
    candidates: Float[Tensor, "candidates dim"],
    *,
    temperature: float,
    similarity: Similarity = "cosine",
    bias: Float[Tensor, "batch candidates"] | None = None,
    further: Float[Tensor, "batch further"] | None = None,
) -> Float[Tensor, " batch"]:
    r"""Pull each anchor towards the candidate of its own row and away from all others.

    With $s_{ij} = \mathrm{sim}(a_i, c_j) / \tau + b_{ij}$,

    $$L_i = -\Big[ s_{ii} - \log \sum_j e^{s_{ij}} \Big].$$

    The loss normalizes over the candidates of an anchor, not over the anchors of a candidate.

    Args:
        anchors: One embedding per row, a.
        candidates: One embedding per row, c. Row i is the positive of anchor i; further rows are
            negatives of all anchors.
        temperature: Divides the similarities (tau), above 0.
        similarity: `cosine` as in both papers, or `dot`.
        bias: A summand of the logits (b): the log of a candidate's weight, or minus infinity to
            exclude the candidate; None: 0.
        further: Further logits in each anchor's sum, such as the logits of its positive with other
            anchors (Li et al., "GTE", 2023, eq. 3); None: no further logits.

    Returns:
        The loss of each anchor, in nats, unreduced.

    Raises:
        ValueError: The temperature is not above 0.

    References:
        Gao et al., "SimCSE", EMNLP 2021, eq. 1; Sun and Huang, "ConIsI", CCL 2022, eq. 3.
    """
    check_temperature(temperature)
    logits = pairwise_similarity(anchors, candidates, similarity) / temperature
    if bias is not None:
        logits = logits + bias
    joined = logits if further is None else torch.cat([logits, further], dim=1)
    return torch.logsumexp(joined, dim=1) - logits.diagonal()
