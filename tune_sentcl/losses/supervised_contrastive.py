"""The supervised contrastive loss of SCL."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tune_sentcl.losses.similarity import Similarity, check_temperature, pairwise_similarity


def supervised_contrastive(
    anchors: Float[Tensor, "anchors dim"],
    candidates: Float[Tensor, "candidates dim"],
    positives: Bool[Tensor, "anchors candidates"],
    negatives: Bool[Tensor, "anchors candidates"],
    *,
    temperature: float,
    similarity: Similarity = "dot",
) -> Float[Tensor, " anchors"]:
    r"""Pull each anchor's positives towards it and push its negatives away.

    For an anchor $u_i$ with positives $P_i$, negatives $N_i$ and $s_{ij} = u_i \cdot v_j / \tau$,

    $$L_i = -\frac{1}{|P_i|} \sum_{p \in P_i}
        \Big[ s_{ip} - \log \sum_{k \in P_i \cup N_i} e^{s_{ik}} \Big].$$

    The denominator holds all positives and negatives; the mean over the positives is outside the
    logarithm. A candidate in neither mask does not count.

    Args:
        anchors: The anchors' embeddings u.
        candidates: The candidates' embeddings v.
        positives: The candidates in P_i. An anchor without positives has the loss NaN.
        negatives: The candidates in N_i, if any.
        temperature: Divides the similarities (tau), above 0.
        similarity: `dot` as in the authors' code, or `cosine`.

    Returns:
        The loss of each anchor, in nats, unreduced.

    Raises:
        ValueError: The temperature is not above 0, or an anchor has no positive. The second check
            runs only on the CPU; on a GPU it would wait for the device.

    References:
        Liao, "Sentence Embeddings using Supervised Contrastive Learning", arXiv 2106.04791, eq. 2.

    Example:
        >>> import torch
        >>> u, v = torch.eye(2), torch.eye(2)
        >>> own = torch.eye(2, dtype=torch.bool)
        >>> supervised_contrastive(u, v, own, ~own, temperature=1.0)
        tensor([0.3133, 0.3133])
    """
    check_temperature(temperature)
    if positives.device.type == "cpu" and not bool(positives.any(dim=1).all()):
        rows = (~positives.any(dim=1)).nonzero().flatten().tolist()
        raise ValueError(f"each anchor must have a positive, but anchors {rows} have none")
    logits = pairwise_similarity(anchors, candidates, similarity) / temperature
    reachable = logits.masked_fill(~(positives | negatives), -torch.inf)
    log_share = logits - torch.logsumexp(reachable, dim=1, keepdim=True)
    return -(log_share * positives).sum(dim=1) / positives.sum(dim=1)
