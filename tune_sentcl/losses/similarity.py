"""Similarities that the losses share."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from tune_sentcl.shapes import Embeddings

Similarity = Literal["dot", "cosine"]

SHORTEST = 1e-4
"""What a shorter vector is divided by: far below any embedding, and it bounds the gradient."""


def pairwise_similarity(
    left: Embeddings, right: Float[Tensor, "others dim"], similarity: Similarity
) -> Float[Tensor, "batch others"]:
    """Compare every row of one matrix with every row of another, in single precision at least.

    Args:
        left: One embedding a row.
        right: One embedding a row, of the same width.
        similarity: `dot` is the raw product, without bound; `cosine` lies in [-1, 1] and ignores
            lengths; that of the zero vector is 0, with a gradient of at most 1e4.

    Returns:
        The similarity of each pair of rows.
    """
    # Autocast would round the product to bfloat16's eight bits, and the temperature multiplies
    # what that loses: cosines of 0.9 over 0.05 would come in steps of an eighth.
    with torch.autocast(left.device.type, enabled=False):
        left, right = widened(left), widened(right)
        if similarity == "cosine":
            left, right = (normalize(x, dim=-1, eps=SHORTEST) for x in (left, right))
        return left @ right.T


def paired_similarity(left: Embeddings, right: Embeddings) -> Float[Tensor, " batch"]:
    """The cosine of each row with the row beside it, bounded as in `pairwise_similarity`.

    Args:
        left: One embedding a row.
        right: As many, of the same width.
    """
    left, right = (normalize(widened(x), dim=-1, eps=SHORTEST) for x in (left, right))
    return (left * right).sum(-1)


def widened(numbers: Tensor) -> Tensor:
    """Numbers in single precision at least."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that is not above 0.

    Raises:
        ValueError: It is not.
    """
    if not temperature > 0:
        raise ValueError(f"temperature > 0 must hold, but got temperature={temperature}")
