"""Similarities that the losses share."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from tune_sentcl.shapes import Embeddings

Similarity = Literal["dot", "cosine"]

SHORTEST = 1e-4
"""The least norm by which a vector is divided. Embeddings are longer; it bounds the gradient."""


def pairwise_similarity(
    left: Embeddings, right: Float[Tensor, "others dim"], similarity: Similarity
) -> Float[Tensor, "batch others"]:
    """Compare every row of `left` with every row of `right`, at least in single precision.

    Args:
        left: One embedding per row.
        right: One embedding per row, of the same width.
        similarity: `dot` is unbounded. `cosine` is in [-1, 1] and ignores lengths; the zero vector
            has the cosine 0 and a gradient of at most 1e4.

    Returns:
        The similarity of each pair of rows.
    """
    # Autocast would round the product to bfloat16's eight bits. Dividing by the temperature
    # magnifies this error: cosines near 0.9, divided by 0.05, would have steps of an eighth.
    with torch.autocast(left.device.type, enabled=False):
        left, right = widened(left), widened(right)
        if similarity == "cosine":
            left, right = (normalize(x, dim=-1, eps=SHORTEST) for x in (left, right))
        return left @ right.T


def paired_similarity(left: Embeddings, right: Embeddings) -> Float[Tensor, " batch"]:
    """The cosine of each row of `left` with the same row of `right`."""
    left, right = (normalize(widened(x), dim=-1, eps=SHORTEST) for x in (left, right))
    return (left * right).sum(-1)


def widened(numbers: Tensor) -> Tensor:
    """Convert numbers to single precision, unless they have more."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def check_temperature(temperature: float) -> None:
    """Raise ValueError if a temperature is not above 0."""
    if not temperature > 0:
        raise ValueError(f"temperature > 0 must hold, but got temperature={temperature}")
