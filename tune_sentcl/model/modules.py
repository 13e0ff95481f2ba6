"""Modules of sentence-transformers that belong to an encoder: its head and its tail.

The head turns token states into an embedding, the tail changes the embedding. The library is
imported where the first module is made, because that takes three seconds.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tune_sentcl.shapes import Embeddings

Activation = Literal["Identity", "ReLU", "Tanh", "GELU"]
"""The class of an activation in `torch.nn`."""


class Modules(nn.Sequential):
    """Modules that each change a table of features, and the embedding that they lead to."""

    def from_features(self, features: Mapping[str, Tensor]) -> Embeddings:
        """Run the modules.

        Args:
            features: As a Transformer of sentence-transformers gives them, such as
                `token_embeddings`, `attention_mask` and `input_ids`.
        """
        found = dict(features)
        for module in self:
            found = module(found)
        return found["sentence_embedding"]

    def width(self, dim: int) -> int:
        """The output width for embeddings of width `dim`."""
        sizes = (getattr(module, "get_embedding_dimension", None) for module in reversed(self))
        return next((int(size()) for size in sizes if size is not None), dim)


class Tail(Modules):
    """The modules after an encoder's pooling, possibly none, that belong to the encoder."""

    def forward(self, embeddings: Embeddings) -> Float[Tensor, "batch width"]:
        """Transform embeddings to the tail's output width."""
        return self.from_features({"sentence_embedding": embeddings})


def dense(layer: nn.Linear, activation: Activation) -> nn.Module:
    """A `Dense` module of sentence-transformers around a layer; the layer is not copied."""
    from sentence_transformers.sentence_transformer import modules

    library: Any = modules
    with torch.device("meta"):  # so that no random number is drawn for the layer that is replaced
        made: nn.Module = library.Dense(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            activation_function=getattr(nn, activation)(),
        )
    made.linear = layer
    return made
