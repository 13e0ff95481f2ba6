"""Layers besides a transformer: the encoder's modules, and heads that only training uses.

An encoder's modules are those of sentence-transformers. Its head turns token states into an
embedding; its tail changes the embedding. The library is imported when the first module is made,
because the import takes three seconds.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tune_sentcl.shapes import Embeddings

Activation = Literal["Identity", "ReLU", "Tanh", "GELU"]
"""The class of an activation in `torch.nn`."""
ClassifierActivation = Literal["none", "relu", "tanh"]
"""The activation of a pair classifier."""


class Modules(nn.Sequential):
    """Modules that change a dict of features one after another, up to the embedding."""

    def from_features(self, features: Mapping[str, Tensor]) -> Embeddings:
        """Run the modules and return the embeddings.

        Args:
            features: Features by the names of sentence-transformers' module Transformer, such as
                `token_embeddings`, `attention_mask` and `input_ids`.
        """
        table = dict(features)
        for module in self:
            table = module(table)
        return table["sentence_embedding"]

    def width(self, dim: int) -> int:
        """The output width for embeddings of width `dim`."""
        sizes = (getattr(module, "get_embedding_dimension", None) for module in reversed(self))
        return next((int(size()) for size in sizes if size is not None), dim)


class Tail(Modules):
    """The encoder's modules after its pooling, often none."""

    def forward(self, embeddings: Embeddings) -> Float[Tensor, "batch width"]:
        """Transform embeddings to the tail's output width."""
        return self.from_features({"sentence_embedding": embeddings})


def dense(layer: nn.Linear, activation: Activation) -> nn.Module:
    """A `Dense` module of sentence-transformers around a layer; the layer is not copied."""
    from sentence_transformers.sentence_transformer import modules

    library: Any = modules
    # On the device `meta`, the constructor draws no random numbers for a layer that is replaced
    # anyway.
    with torch.device("meta"):
        made: nn.Module = library.Dense(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            activation_function=getattr(nn, activation)(),
        )
    made.linear = layer
    return made


class PairClassifier(nn.Module):
    """Classifies a pair's features (u, v, |u - v|): entailment, neutral or contradiction.

    The layers are Linear(3 dim, hidden), activation, Linear(hidden, 3), without dropout (SCL
    section 3). The authors use no activation, so their two layers are one linear map.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        activation: ClassifierActivation,
        generator: torch.Generator,
    ) -> None:
        """Draw the weights from `generator` on the CPU; torch's global generator is unchanged."""
        super().__init__()
        self.layers = nn.Sequential(
            linear(3 * dim, hidden, generator),
            {"none": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh}[activation](),
            linear(hidden, 3, generator),
        )

    def forward(self, u: Embeddings, v: Embeddings) -> Float[Tensor, "batch 3"]:
        """The logits of entailment, neutral and contradiction of premises u and hypotheses v."""
        scores: Tensor = self.layers(torch.cat([u, v, (u - v).abs()], dim=1))
        return scores


class TanhHead(nn.Module):
    """SimCSE's training head: Linear(dim, dim) and tanh, weights from N(0, 0.02)."""

    def __init__(self, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layer = normal_linear(dim, dim, generator)

    def forward(self, embeddings: Embeddings) -> Embeddings:
        """Transform embeddings for the contrastive loss."""
        return torch.tanh(self.layer(embeddings))


class InteractionHead(nn.Module):
    """ConIsI's heads: g, which both losses share, and the interactive score on top of it.

    g(x) = ELU(BatchNorm1d(Linear(dim, dim)(x))) (ConIsI eq. 2 and 6). The score is
    Linear(dim, scores)(g(x)) (eq. 7). Linear weights are from N(0, 0.02), as in SimCSE.
    """

    def __init__(self, dim: int, scores: int, generator: torch.Generator) -> None:
        """Draw the weights; a pair gets `scores` interactive scores (the paper's r has `dim`)."""
        super().__init__()
        self.predictor = nn.Sequential(
            normal_linear(dim, dim, generator), nn.BatchNorm1d(dim), nn.ELU()
        )
        self.score = normal_linear(dim, scores, generator)

    def forward(self, embeddings: Embeddings) -> Embeddings:
        """Apply the head g; in training it needs two rows or more."""
        hidden: Embeddings = self.predictor(embeddings)
        return hidden


def normal_linear(fan_in: int, fan_out: int, generator: torch.Generator) -> nn.Linear:
    """A layer with weights from N(0, 0.02) and zero bias, like new layers of BERT and SimCSE."""
    layer = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
    nn.init.normal_(layer.weight, std=0.02, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def linear(fan_in: int, fan_out: int, generator: torch.Generator) -> nn.Linear:
    """A layer with torch.nn.Linear's distribution and order of draws, from a given generator."""
    layer = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
