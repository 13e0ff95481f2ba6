"""What of an encoder training moves: its lowest layers can stay, and what stays is not stored."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tune_sentcl.errors import CheckpointError, Fault


def require_trained_layer(count: int, layers: int) -> None:
    """See that layers which stay as they are leave one to train.

    Args:
        count: How many stay.
        layers: How many the encoder has.

    Raises:
        CheckpointError: They leave none.
    """
    if count >= layers:
        rule = f"must leave a layer to train, and the encoder has {layers}"
        move = f"Take {layers - 1} or less; method none trains nothing."
        raise CheckpointError(Fault("encoder.freeze_layers", "", str(count), rule, move))


def freeze_lowest(transformer: Any, count: int) -> None:
    """Let a transformer's lowest layers stay as they are, and all that stands before them.

    Weights are registered in the order in which a sentence meets them: embeddings, layers, and a
    last norm where there is one.

    Args:
        transformer: Changed in place.
        count: How many layers, 1 or more.

    Raises:
        CheckpointError: That would leave none to train, or its layers cannot be told apart.
    """
    place, layers = _layers(transformer)
    require_trained_layer(count, layers)
    first = f"{place}.{count}."
    for name, weight in transformer.named_parameters():
        if name.startswith(first):
            return
        weight.requires_grad_(False)


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module without its frozen weights, tied ones once; not a copy."""
    trained = {name for name, weight in module.named_parameters() if weight.requires_grad}
    rest = {name for name, _ in module.named_parameters(remove_duplicate=False)} - trained
    return {name: value for name, value in module.state_dict().items() if name not in rest}


def restore_trained(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give a module what `trained_state` has given of an equal one.

    Raises:
        KeyError, RuntimeError: It is of another one.
    """
    other = state.keys() ^ trained_state(module).keys()
    if other:
        raise KeyError(f"a state of other weights, such as {min(other)}")
    module.load_state_dict(dict(state), strict=False)


def _layers(transformer: Any) -> tuple[str, int]:
    """Where a transformer's layers lie, and how many there are."""
    count = int(transformer.config.num_hidden_layers)
    for name, part in transformer.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return name, count
    rule = f"the layers of {transformer.config.model_type} cannot be told apart"
    raise CheckpointError(Fault("encoder.freeze_layers", "", "", rule, "Set it to 0."))
