"""The AnglE loss: order pairs by their scores, with angles between complex vectors."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, pad

from tune_sentcl.losses.cosent import ranked
from tune_sentcl.losses.similarity import SHORTEST, widened
from tune_sentcl.shapes import Embeddings, Scalar


def angle(
    left: Embeddings, right: Embeddings, scores: Float[Tensor, " batch"], *, temperature: float
) -> Scalar:
    r"""Order a batch's pairs by their scores, with a similarity of complex vectors.

    The first half of an embedding holds real parts, the second half imaginary parts. With $z_i$
    and $w_i$ the complex vectors of pair i, of length 1, $q_i = \overline{w_i} \cdot z_i$ and $a_i
    = |\mathrm{Re}\,q_i + \mathrm{Im}\,q_i|$, the loss is that of `cosent` with $a_i$ in place of
    the cosine. Where two vectors are parallel or opposite, the cosine has slope 0 and the
    imaginary part is steepest.

    Args:
        left: The first sentence's embedding of each pair; an odd width is padded with a zero.
        right: The second sentence's embedding of each pair.
        scores: The similarity of each pair, on any scale.
        temperature: Divides the similarities (tau), above 0.

    Returns:
        The loss of the batch, in nats.

    Raises:
        ValueError: The temperature is not above 0.

    References:
        Li and Li, "AnglE-optimized Text Embeddings", ACL 2024, section 3.4. The real and the
        imaginary part are summed as in sentence-transformers' `AnglELoss`.
    """
    return ranked(angle_similarity(left, right), scores, temperature=temperature)


def angle_similarity(left: Embeddings, right: Embeddings) -> Float[Tensor, " batch"]:
    """The similarity $a_i$ of each pair, defined in `angle`, in [0, sqrt(2)]."""
    odd = left.shape[1] % 2
    u, v = (normalize(pad(widened(x), (0, odd)), dim=-1, eps=SHORTEST) for x in (left, right))
    (real_u, imaginary_u), (real_v, imaginary_v) = u.chunk(2, dim=1), v.chunk(2, dim=1)
    real = (u * v).sum(-1)
    imaginary = (imaginary_u * real_v - real_u * imaginary_v).sum(-1)
    return (real + imaginary).abs()
