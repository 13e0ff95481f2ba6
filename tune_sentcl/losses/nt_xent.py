"""NT-Xent, the contrastive loss of CLSR and SimCLR."""

import torch
from jaxtyping import Float
from torch import Tensor

from tune_sentcl.losses.similarity import check_temperature, pairwise_similarity
from tune_sentcl.shapes import Embeddings


def nt_xent(left: Embeddings, right: Embeddings, *, temperature: float) -> Float[Tensor, " both"]:
    r"""Pull the two vectors of a pair together, away from the other 2m - 2 of the batch.

    Of the 2m vectors $v$ of m pairs, with $s_{ab} = \cos(v_a, v_b) / \tau$ and $a'$ the partner
    of $a$,

    $$L_a = -\Big[ s_{aa'} - \log \sum_{i \neq a} e^{s_{ai}} \Big].$$

    The denominator contains every other vector, the partner included. Each vector of a pair is
    once the anchor. SimCLR's code adds the mean over `left` and the mean over `right`, which is
    twice the mean over all 2m.

    Args:
        left: The first sentence's embedding of each pair.
        right: The second sentence's embedding of each pair.
        temperature: Divides the cosines (tau), above 0.

    Returns:
        The loss of each of the 2m vectors, first `left`, then `right`, in nats, unreduced.

    Raises:
        ValueError: The temperature is not above 0.

    References:
        Qiu, Ding and Chen, "Contrastive Learning of Sentence Representations", ICON 2021, eq. 1;
        Chen et al., "SimCLR", ICML 2020, eq. 1.
    """
    check_temperature(temperature)
    both = torch.cat([left, right])
    logits = pairwise_similarity(both, both, "cosine") / temperature
    itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
    partners = torch.cat([logits.diagonal(len(left)), logits.diagonal(-len(left))])
    return torch.logsumexp(logits.masked_fill(itself, -torch.inf), dim=1) - partners
