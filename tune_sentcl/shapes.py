"""Names for the arrays that modules exchange.

Axes: `batch` sentences or pairs, `time` token positions (including padding), `dim` the width of an
embedding. Shapes are checked at run time only in the tests (jaxtyping with beartype).
"""

import numpy as np
from jaxtyping import Float, Float32, Int
from torch import Tensor

Mask = Int[Tensor, "batch time"]
"""1 at tokens, 0 at padding."""
TokenStates = Float[Tensor, "batch time dim"]
"""One vector per token, from a layer of the transformer."""
Embeddings = Float[Tensor, "batch dim"]
"""One vector per sentence."""
Scalar = Float[Tensor, ""]
"""A reduced loss."""
EmbeddingMatrix = Float32[np.ndarray, "sentences dim"]
"""A model's output for evaluation: one float32 row per sentence."""
