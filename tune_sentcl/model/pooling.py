"""Pooling: pure functions from the states of a sentence's tokens to one embedding.

Padding is on the right and never changes a result.
"""

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from tune_sentcl.config import Pooling
from tune_sentcl.model.device import to_device
from tune_sentcl.shapes import Embeddings, Mask, TokenStates

Divisor = int | Int[np.ndarray, " batch"] | None
"""The padded length by which means divide, see `pool`; an array has one length per sentence."""


def pool(
    states: TokenStates,
    mask: Mask,
    pooling: Pooling,
    divisor: Divisor = None,
    first: TokenStates | None = None,
) -> Embeddings:
    """Turn token states into sentence embeddings.

    Args:
        states: The last layer's output.
        mask: 1 at tokens, special tokens included, 0 at padding on the right.
        pooling: `mean` of all tokens; `mean_without_cls` of all but position 0 (SCL section 3: the
            authors' code); `cls`, the state at position 0; `last`, the state of the last token,
            which under causal attention alone has seen all tokens; `first_last`, the mean over all
            tokens of the average of the first and the last layer; `static_last`, the same with the
            input of the first layer, which papers print as "first-last average" (ConIsI's Table 4,
            after SimCSE).
        divisor: The padded length T, special tokens included, of the sentences' batch. Means then
            divide by T (`mean_without_cls`: by T - 1) instead of the sentence's own number of
            tokens. The embedding then does not depend on which part of the batch is encoded
            together. For training only; `cls` and `last` ignore it.
        first: For `first_last` the first transformer layer's output, for `static_last` its input.

    Returns:
        One vector per sentence, at least in single precision.

    Raises:
        ValueError: `first` is missing for `first_last` or `static_last`, or the pooling is
            `modules`.
    """
    match pooling:
        case "cls":
            return _widened(states)[:, 0]
        case "last":
            return _last(states, mask)
        case "mean":
            return _masked_mean(states, mask, pooling, divisor)
        case "mean_without_cls":
            return _masked_mean(states[:, 1:], mask[:, 1:], pooling, divisor)
        case "first_last" | "static_last":
            if first is None:
                raise ValueError(f"{pooling} pooling needs the first layer's states")
            average = (_widened(first) + _widened(states)) / 2
            return _masked_mean(average, mask, pooling, divisor)
        case "modules":
            raise ValueError("an encoder's own modules pool by themselves")


def pool_packed(
    states: Float[Tensor, "tokens dim"],
    ranges: Int64[Tensor, " ranges"],
    counts: Int64[Tensor, " batch"],
    first: Float[Tensor, "tokens dim"] | None = None,
) -> Embeddings:
    """Pool packed states as `pool` pools padded states, in a few kernels of fixed shapes.

    Long sentences are summed in another order, so results may differ in the last digits.

    Args:
        states: The last layer's output.
        ranges: For each sentence, the start and the end of its pooled tokens.
        counts: The divisor of each sentence's sum.
        first: As the argument `first` of `pool`.
    """
    average = _widened(states) if first is None else (_widened(first) + _widened(states)) / 2
    # `ranges` holds the begin and end of each sentence, so every second segment lies between two
    # sentences and is dropped.
    sums = torch.segment_reduce(average, "sum", offsets=ranges, unsafe=True)[::2]
    return sums / counts.unsqueeze(1)


def pooled_ranges(
    pooling: Pooling, bounds: Int[np.ndarray, " bounds"], divisor: Divisor = None
) -> tuple[Int64[np.ndarray, " ranges"], Int64[np.ndarray, " batch"]]:
    """The ranges and counts for `pool_packed`.

    Args:
        pooling: As for `pool`.
        bounds: The start of each sentence in the packed states, then the end of the last.
        divisor: As for `pool`.
    """
    starts, ends = bounds[:-1], bounds[1:]
    if pooling == "cls":
        ends = np.minimum(starts + 1, ends)
    elif pooling == "last":
        starts = np.maximum(ends - 1, starts)
    elif pooling == "mean_without_cls":
        starts = np.minimum(starts + 1, ends)
    counts = np.maximum(ends - starts, 1)
    if divisor is not None:
        given = np.broadcast_to(divisor, counts.shape).tolist()
        counts = np.array([padded_count(pooling, length) for length in given])
    return np.stack([starts, ends], axis=1).ravel().astype(np.int64), counts.astype(np.int64)


def padded_count(pooling: Pooling, length: int) -> int:
    """The number by which `pool` divides for the padded length `length`; 1 if it does not."""
    match pooling:
        case "cls" | "last" | "modules":
            return 1
        case "mean_without_cls":
            return max(length - 1, 1)
        case "mean" | "first_last" | "static_last":
            return max(length, 1)


def _last(states: TokenStates, mask: Mask) -> Embeddings:
    counts = mask.sum(dim=1)
    rows = torch.arange(len(states), device=states.device)
    last = _widened(states)[rows, (counts - 1).clamp(min=0)]
    # A sentence without tokens becomes the zero vector, as it does under mean pooling.
    return last.masked_fill((counts == 0).unsqueeze(1), 0.0)


def _masked_mean(
    states: TokenStates,
    mask: Mask,
    pooling: Pooling,
    divisor: Divisor,
) -> Embeddings:
    # A product with the mask would make NaN of 0 * inf, so the states are filled.
    kept = _widened(states).masked_fill(mask.unsqueeze(-1) == 0, 0.0)
    if isinstance(divisor, np.ndarray):
        divisors = np.array([padded_count(pooling, length) for length in divisor.tolist()])
        return kept.sum(dim=1) / to_device(divisors, kept.device).unsqueeze(1)
    if divisor is not None:
        return kept.sum(dim=1) / padded_count(pooling, divisor)
    # The clamp gives a sentence without tokens the zero vector instead of NaN.
    counts = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return kept.sum(dim=1) / counts


def _widened(states: Tensor) -> Tensor:
    # The states are summed in single precision, because bfloat16 loses digits in sums over many
    # tokens.
    return states.to(torch.promote_types(states.dtype, torch.float32))
