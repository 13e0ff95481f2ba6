"""Encoders without a transformer: the mean of one trained vector for each token of a sentence.

They correspond to sentence-transformers' `StaticEmbedding`. Special tokens are not added.
"""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

from tune_sentcl.model.device import to_device
from tune_sentcl.model.pooling import Divisor
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings


class TokenVectors(nn.Module):
    """The vectors of all tokens; a static encoder has this module in place of a transformer."""

    def __init__(self, vectors: Float[Tensor, "tokens dim"]) -> None:
        super().__init__()
        count, width = vectors.shape
        self.embedding = nn.EmbeddingBag(count, width, mode="mean", _weight=vectors)
        self.config = SimpleNamespace(hidden_size=width, model_type="static")

    def forward(self, tokens: Tokens, divisor: Divisor = None) -> Embeddings:
        """The means of the inputs' vectors, 0 without tokens; for `divisor` see `pool`."""
        device = self.embedding.weight.device
        numbers = (tokens.ids.astype(np.int64), tokens.offsets[:-1])
        means: Embeddings = self.embedding(*(to_device(array, device) for array in numbers))
        if divisor is None:
            return means
        shares = (tokens.lengths / np.maximum(divisor, 1)).astype(np.float32)
        return means * to_device(shares, device).unsqueeze(1)

    def get_input_embeddings(self) -> nn.EmbeddingBag:
        """The table of vectors; the name is that of transformers' models."""
        return self.embedding

    def draw(self, seed: int) -> None:
        """Draw the vectors from N(0, 1), as sentence-transformers does."""
        weight, generator = self.embedding.weight, torch.Generator().manual_seed(seed)
        with torch.no_grad():
            weight.copy_(torch.randn(weight.shape, generator=generator))

    def save_pretrained(self, folder: Path, **_: object) -> None:
        """Write the file of weights that sentence-transformers' `StaticEmbedding` reads."""
        save_file(dict(self.state_dict()), Path(folder) / "model.safetensors")


def new_vectors(tokenizer: Any, width: int) -> TokenVectors:
    """Vectors for a tokenizer's tokens, drawn with seed 0."""
    made = TokenVectors(torch.empty(max(tokenizer.get_vocab().values()) + 1, width))
    made.draw(0)
    return made


def without_special_tokens(backend: Any, truncation_side: str) -> Any:
    """Make a tokenizer of transformers that adds no special tokens, from one of `tokenizers`."""
    import transformers

    library: Any = transformers
    plain = copy.deepcopy(backend)
    plain.post_processor = None
    plain.no_truncation()
    plain.no_padding()
    return library.PreTrainedTokenizerFast(tokenizer_object=plain, truncation_side=truncation_side)


def static_module(vectors: TokenVectors, tokenizer: Any) -> nn.Module:
    """The same vectors as sentence-transformers' module StaticEmbedding."""
    from sentence_transformers.sentence_transformer import modules

    library: Any = modules
    weights = vectors.embedding.weight.detach()
    made: nn.Module = library.StaticEmbedding(tokenizer.backend_tokenizer, weights)
    return made
