"""Smaller embeddings: cut to a width, and with fewer bits, as sentence-transformers makes them."""

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
        quantization: The kind of the numbers; `none` is single precision.
        ranges: The least and the greatest of each number, which `int8` divides into 256 steps.
    """

    width: int | None = None
    quantization: Literal["none", "int8", "binary"] = "none"
    ranges: Float32[np.ndarray, "2 dim"] | None = None

    def apply(self, embeddings: EmbeddingMatrix) -> EmbeddingMatrix:
        """The numbers that are stored, in single precision.

        Bits become -1 and 1, whose cosine falls as the Hamming distance of the bits grows: it is
        1 - 2 distance / width.
        """
        cut: EmbeddingMatrix = normalize(torch.from_numpy(embeddings)[:, : self.width]).numpy()
        if self.quantization == "none":
            return cut
        # Imported here, because the import takes three seconds.
        from sentence_transformers.util import quantize_embeddings

        if self.quantization == "int8":
            steps: np.ndarray = quantize_embeddings(cut, "int8", ranges=self.ranges)
            return steps.astype(np.float32)
        bits = np.unpackbits(quantize_embeddings(cut, "ubinary"), axis=1, count=cut.shape[1])
        return 2 * bits.astype(np.float32) - 1

    def bytes(self, width: int) -> int:
        """Bytes of a stored embedding that has `width` numbers before it is cut."""
        return math.ceil((self.width or width) * _BITS[self.quantization] / 8)
