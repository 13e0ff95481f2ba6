"""Freezing of an encoder's lowest layers, and the state of its trained weights only."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tune_sentcl.errors import CheckpointError, Fault


def require_trained_layer(count: int, layers: int) -> None:
    """Raise CheckpointError if `count` frozen layers of `layers` leave no layer to train."""
    if count >= layers:
        rule = f"must leave at least one of the encoder's {layers} layers to train"
        move = f"Set it to {layers - 1} or less; method none trains no layers."
        raise CheckpointError(
            Fault("encoder.freeze_layers", value=str(count), rule=rule, move=move)
        )


def freeze_lowest(transformer: Any, count: int) -> None:
    """Freeze a transformer's lowest layers and its embeddings, in place.

    This relies on the order of the transformer's parameters: embeddings, layers, then a final
    norm, if any.

    Raises:
        CheckpointError: No layer would be left to train, or the list of layers is not found.
    """
    prefix, layers = _layers(transformer)
    require_trained_layer(count, layers)
    first = f"{prefix}.{count}."
    for name, weight in transformer.named_parameters():
        if name.startswith(first):
            return
        weight.requires_grad_(False)


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module without frozen weights, with tied weights once; not a copy."""
    trained = {name for name, weight in module.named_parameters() if weight.requires_grad}
    rest = {name for name, _ in module.named_parameters(remove_duplicate=False)} - trained
    return {name: value for name, value in module.state_dict().items() if name not in rest}


def restore_trained(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load the `trained_state` of a module with the same weights.

    Raises:
        KeyError, RuntimeError: The state belongs to another module.
    """
    other = state.keys() ^ trained_state(module).keys()
    if other:
        raise KeyError(f"a state of other weights, such as {min(other)}")
    module.load_state_dict(dict(state), strict=False)


def _layers(transformer: Any) -> tuple[str, int]:
    """The name of a transformer's list of layers, and their number."""
    count = int(transformer.config.num_hidden_layers)
    for name, part in transformer.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return name, count
    rule = f"the layers of {transformer.config.model_type} cannot be found"
    raise CheckpointError(Fault("encoder.freeze_layers", rule=rule, move="Set it to 0."))
