"""The methods of plugins' losses: sentence embeddings go in, a tensor of one number comes out."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tune_sentcl.config import METHODS, EmbeddingLossConfig, MethodConfig
from tune_sentcl.config.embedding_methods import GradedConfig
from tune_sentcl.errors import Fault, PluginError
from tune_sentcl.methods.base import StepLoss
from tune_sentcl.methods.embedding_losses import DrawnTriplets, GradedMethod, TripletMethod
from tune_sentcl.shapes import Embeddings


def loss_class(config: MethodConfig) -> type[GradedMethod[Any] | TripletMethod[Any]]:
    """The method that gives a plugin's loss the rows which its config names."""
    return GradedLoss if isinstance(config, GradedConfig) else TripletLoss


class GradedLoss(GradedMethod[EmbeddingLossConfig]):
    """A plugin's loss over pairs with a score."""

    def compare(
        self, left: Embeddings, right: Embeddings, scores: Float[Tensor, " rows"]
    ) -> StepLoss:
        """The loss of the pairs."""
        return _step_loss(self.config, anchors=left, positives=right, labels=scores)


class TripletLoss(TripletMethod[EmbeddingLossConfig]):
    """A plugin's loss over anchors with positives and negatives."""

    def loss_of(self, drawn: DrawnTriplets) -> StepLoss:
        """The loss over the batch."""
        return self.embedded(drawn, lambda found: _step_loss(self.config, **vars(found)))


def _step_loss(config: EmbeddingLossConfig, **inputs: Tensor) -> StepLoss:
    """Call a plugin's function with the inputs that it has parameters for.

    Raises:
        PluginError: It returns something else than a tensor of one number with a gradient.
    """
    function, names = _bound(config)
    loss = function(**{name: inputs[name] for name in names if name in inputs})
    if isinstance(loss, Tensor) and not loss.ndim and loss.requires_grad:
        return StepLoss(loss, {config.name: loss})
    value = f"{tuple(loss.shape)} {loss.dtype}" if torch.is_tensor(loss) else type(loss).__name__
    rule = "must return a tensor of one number that depends on the embeddings"
    where = f"{METHODS[config.name].plugin}: loss {config.name}"
    raise PluginError(Fault(where, "returned", value, rule, "Return such as losses.mean()."))


def _bound(config: EmbeddingLossConfig) -> tuple[Callable[..., Any], list[str]]:
    """A plugin's function with the values of its knobs, and the names of all its parameters."""
    function = METHODS[config.name].implementation
    if function is None:
        raise TypeError(f"{config.name} is no loss of a plugin")
    names = list(inspect.signature(function).parameters)
    knobs = {name: getattr(config, name) for name in names if name in type(config).model_fields}
    return partial(function, **knobs), names
