"""Evaluation of many sentences in batches of similar length."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.model.tokens import Tokens, batches_by_length
from tune_sentcl.shapes import EmbeddingMatrix

# A CPU is fastest if a batch's states fit its caches; a GPU is fastest with large batches.
_TOKENS_ON_CPU, _TOKENS_ON_GPU = 1024, 32768
_MOST_WAITING = 2**26  # numbers that wait on the device to be copied; they take a quarter of a GiB

Progress = Callable[[int, int], None]
"""Called with the number of encoded distinct sentences, and their total number."""


def by_batches(
    encode: Callable[[Tokens], Tensor],
    tokens: Tokens,
    width: int,
    device: torch.device,
    progress: Progress | None,
) -> EmbeddingMatrix:
    """Encode inputs in batches that suit the device, the longest inputs first.

    Args:
        encode: Maps a batch to its embeddings of width `width`, on the device.
        tokens: The inputs.
        width: The width of an embedding.
        device: The device.
        progress: Called after each batch.

    Returns:
        One row per input, in the order of the inputs.
    """
    matrix = np.empty((len(tokens), width), dtype=np.float32)
    budget = _TOKENS_ON_CPU if device.type == "cpu" else _TOKENS_ON_GPU
    # Each copy to the host waits for the device, so the embeddings of many batches are copied
    # together.
    waiting: list[Tensor] = []
    copied = done = 0
    order = np.argsort(-tokens.lengths, kind="stable")
    for rows in batches_by_length(tokens.lengths[order], budget):
        waiting.append(encode(tokens.take(order[rows])))
        done = rows.stop
        if done == len(order) or (done - copied) * width > _MOST_WAITING:
            matrix[order[copied:done]] = torch.cat(waiting).cpu().numpy()
            waiting, copied = [], done
        if progress is not None:
            progress(done, len(order))
    return matrix


def check_finite(matrix: EmbeddingMatrix, sentences: Sequence[str]) -> None:
    """Raise NonFiniteError that names the first sentence whose embedding is not finite."""
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise NonFiniteError(
            f"{bad.size} of {len(matrix)} embeddings are not finite; the first is that of "
            f"{sentences[bad[0]]!r}. The weights have diverged: lower optimizer.lr. If they "
            "diverge at any learning rate, the gradient of the loss is not finite."
        )
