"""The CoSENT loss: pairs that people find closer shall have the higher cosine."""

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

    Only the order of the scores counts, which is what Spearman's correlation measures. A batch of
    equal scores has nothing to order and loss 0.

    Args:
        left: One embedding a row.
        right: The other sentences, row by row.
        scores: The pairs' similarities, on any scale.
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
    """Put similarities of any kind into the order of the pairs' scores, as `cosent` does cosines.

    Args:
        similarities: One a pair, higher where the model finds it closer.
        scores: As for `cosent`.
        temperature: Likewise.

    Raises:
        ValueError: The temperature is not above 0.
    """
    check_temperature(temperature)
    logits = similarities / temperature
    # Row i, column j: what it costs that pair j, which must be below, is where it is.
    ordered = scores[:, None] > scores[None, :]
    differences = (logits[None, :] - logits[:, None]).masked_fill(~ordered, -torch.inf)
    return torch.logsumexp(torch.cat([logits.new_zeros(1), differences.flatten()]), dim=0)
