"""Dense layers after the pooling that belong to the encoder, as in sentence-transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tune_sentcl.shapes import Embeddings

Activation = Literal["none", "relu", "tanh", "gelu"]

_ACTIVATIONS: dict[Activation, tuple[str, Callable[[Tensor], Tensor]]] = {
    "none": ("torch.nn.modules.linear.Identity", nn.Identity()),
    "relu": ("torch.nn.modules.activation.ReLU", torch.relu),
    "tanh": ("torch.nn.modules.activation.Tanh", torch.tanh),
    "gelu": ("torch.nn.modules.activation.GELU", nn.functional.gelu),
}
"""The activations of a layer, each with the class name in sentence-transformers' files."""


class Dense(nn.Module):
    """A linear layer and an activation, on embeddings."""

    def __init__(self, layer: nn.Linear, activation: Activation) -> None:
        super().__init__()
        self.linear = layer
        self.activation: Activation = activation

    def forward(self, embeddings: Embeddings) -> Float[Tensor, "batch width"]:
        """Transform embeddings to the layer's output width."""
        return _ACTIVATIONS[self.activation][1](self.linear(embeddings))


class Tail(nn.Sequential):
    """The layers after an encoder's pooling, possibly none, that belong to the encoder."""

    def __init__(self, *layers: Dense) -> None:
        super().__init__(*layers)
        self.layers = layers

    def width(self, dim: int) -> int:
        """The output width for embeddings of width `dim`."""
        return self.layers[-1].linear.out_features if self.layers else dim


def write_dense(layer: Dense, folder: Path) -> None:
    """Write a layer as a `Dense` module of sentence-transformers, in an existing folder."""
    config = {
        "in_features": layer.linear.in_features,
        "out_features": layer.linear.out_features,
        "bias": layer.linear.bias is not None,
        "activation_function": _ACTIVATIONS[layer.activation][0],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    weights = {f"linear.{n}": w.detach().cpu().clone() for n, w in layer.linear.named_parameters()}
    save_file(weights, folder / "model.safetensors")


def read_dense(folder: Path) -> Dense:
    """Read a `Dense` module of sentence-transformers, in single precision.

    Raises:
        OSError: A file is missing.
        ValueError: The module is not a plain layer, or a file is damaged.
        KeyError: A file lacks an entry.
        SafetensorError: The weights are damaged.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    by_name = {name: activation for activation, (name, _) in _ACTIVATIONS.items()}
    # Older files name the classes by their shorter path.
    library, _, written = str(config["activation_function"]).rpartition(".")
    short = {name.rpartition(".")[2]: activation for name, activation in by_name.items()}
    if written not in short or not f"{library}.".startswith("torch."):
        raise ValueError(f"its Dense module ends with {written}, which is not in {sorted(short)}")
    embedding = "sentence_embedding"
    names = (config.get(f"module_{end}_name") or embedding for end in ("input", "output"))
    if config.get("use_residual") or any(name != embedding for name in names):
        raise ValueError("its Dense module is more than a layer on the embedding")
    weights = load_file(folder / "model.safetensors")
    layer = nn.Linear(config["in_features"], config["out_features"], "linear.bias" in weights)
    layer.load_state_dict({name.removeprefix("linear."): w for name, w in weights.items()})
    return Dense(layer.float(), short[written])
