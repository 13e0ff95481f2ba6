"""The CoSENT loss: order pairs by cosine as their similarity scores do."""

import torch
from jaxtyping import Float
from torch import Tensor

from tune_sentcl.losses.similarity import check_temperature, paired_similarity
from tune_sentcl.shapes import Embeddings, Scalar


def cosent(
    left: Embeddings, right: Embeddings, scores: Float[Tensor, " batch"], *, temperature: float
) -> Scalar:
    r"""Put the cosines of a batch's pairs into the order of their scores.

    With $c_i$ the cosine of pair i and $y_i$ its score,

    $$L = \log \Big( 1 + \sum_{y_i > y_j} e^{(c_j - c_i) / \tau} \Big).$$

    The loss depends only on the order of the scores, as Spearman's correlation does. A batch of
    equal scores has loss 0.

    Args:
        left: The first sentence's embedding of each pair.
        right: The second sentence's embedding of each pair.
        scores: The similarity of each pair, on any scale.
        temperature: Divides the cosines (tau; the source's scale 20 is 0.05), above 0.

    Returns:
        The loss of the batch, in nats.

    Raises:
        ValueError: The temperature is not above 0.

    References:
        Su, "CoSENT", 2022, https://kexue.fm/archives/8847.
    """
    return ranked(paired_similarity(left, right), scores, temperature=temperature)


def ranked(
    similarities: Float[Tensor, " batch"], scores: Float[Tensor, " batch"], *, temperature: float
) -> Scalar:
    """The loss of `cosent`, with any similarity of the pairs in place of the cosine."""
    check_temperature(temperature)
    logits = similarities / temperature
    # Entry (i, j) is the logit of pair j minus the logit of pair i; it counts if pair j has the
    # lower score.
    ordered = scores[:, None] > scores[None, :]
    differences = (logits[None, :] - logits[:, None]).masked_fill(~ordered, -torch.inf)
    return torch.logsumexp(torch.cat([logits.new_zeros(1), differences.flatten()]), dim=0)
