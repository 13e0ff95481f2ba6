"""Types of the arrays that modules exchange.

Axes: `batch` sentences or pairs, `time` token positions (including padding), `dim` the width of an
embedding. Only the tests check shapes at run time (jaxtyping with beartype).
"""

import numpy as np
from jaxtyping import Float, Float32, Int
from torch import Tensor

Mask = Int[Tensor, "batch time"]
"""1 at tokens, 0 at padding; shape (batch, time)."""
TokenStates = Float[Tensor, "batch time dim"]
"""One vector per token, from a layer of the transformer; shape (batch, time, dim)."""
Embeddings = Float[Tensor, "batch dim"]
"""One vector per sentence; shape (batch, dim)."""
Scalar = Float[Tensor, ""]
"""A reduced loss."""
EmbeddingMatrix = Float32[np.ndarray, "sentences dim"]
"""A model's output for evaluation: one float32 row per sentence."""
