"""Similarities that the losses share."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from tune_sentcl.shapes import Embeddings

Similarity = Literal["dot", "cosine"]


def pairwise_similarity(
    left: Embeddings, right: Float[Tensor, "others dim"], similarity: Similarity
) -> Float[Tensor, "batch others"]:
    """Compare every row of one matrix with every row of another.

    Args:
        left: One embedding a row.
        right: One embedding a row, of the same width.
        similarity: `dot` is the raw product, without bound; `cosine` lies in [-1, 1] and ignores
            lengths.

    Returns:
        The similarity of each pair of rows.
    """
    if similarity == "cosine":
        left, right = normalize(left, dim=-1), normalize(right, dim=-1)
    return left @ right.T
