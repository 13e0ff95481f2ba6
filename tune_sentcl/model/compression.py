"""Smaller embeddings: cut to a width, or with fewer bits, as sentence-transformers makes them."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float32
from torch.nn.functional import normalize

from tune_sentcl.shapes import EmbeddingMatrix

_BITS = {"none": 32, "int8": 8, "binary": 1}


@dataclass(frozen=True)
class Compression:
    """Cuts embeddings, scales them to length 1, and quantizes them.

    Attributes:
        width: The number of leading numbers to keep; None: all.
        quantization: The type of the numbers; `none` means single precision.
        ranges: The least and the greatest value of each dimension; `int8` divides this range into
            256 steps.
    """

    width: int | None = None
    quantization: Literal["none", "int8", "binary"] = "none"
    ranges: Float32[np.ndarray, "2 dim"] | None = None

    def apply(self, embeddings: EmbeddingMatrix) -> EmbeddingMatrix:
        """The compressed numbers, in single precision.

        Bits become -1 and 1, so the cosine of two embeddings is 1 - 2 d / width, where d is the
        Hamming distance of their bits.
        """
        cut: EmbeddingMatrix = normalize(torch.from_numpy(embeddings)[:, : self.width]).numpy()
        if self.quantization == "none":
            return cut
        # This import is not at the top, because it takes three seconds.
        from sentence_transformers.util import quantize_embeddings

        if self.quantization == "int8":
            steps: np.ndarray = quantize_embeddings(cut, "int8", ranges=self.ranges)
            return steps.astype(np.float32)
        bits = np.unpackbits(quantize_embeddings(cut, "ubinary"), axis=1, count=cut.shape[1])
        return 2 * bits.astype(np.float32) - 1

    def bytes(self, width: int) -> int:
        """Bytes of a stored embedding that has `width` numbers before the cut."""
        return math.ceil((self.width or width) * _BITS[self.quantization] / 8)
