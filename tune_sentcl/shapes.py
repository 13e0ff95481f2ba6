"""Names for the arrays that cross a module's border.

Axes: `batch` sentences or pairs, `time` token positions (padding included), `dim` the width of an
embedding. Shapes are checked at run time in the tests only (jaxtyping with beartype).
"""

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

TokenIds = Int[Tensor, "batch time"]
"""Word-piece numbers, padded on the right."""
Mask = Int[Tensor, "batch time"]
"""1 where a token stands, 0 at padding."""
TokenStates = Float[Tensor, "batch time dim"]
"""One vector a token, from some layer of the transformer."""
Embeddings = Float[Tensor, "batch dim"]
"""One vector a sentence."""
PairMask = Bool[Tensor, "anchors candidates"]
"""Which candidates count for which anchor."""
Scalar = Float[Tensor, ""]
"""A loss that has been reduced."""
EmbeddingMatrix = Float32[np.ndarray, "sentences dim"]
"""What evaluation sees of a model: one float32 row a sentence."""
