"""Training methods, one file each: `methods/scl.py` holds the method `scl`."""

from importlib import import_module
from typing import Any

from tune_sentcl.config import METHODS, MethodConfig, TrialConfig
from tune_sentcl.errors import Fault, PluginError
from tune_sentcl.methods.base import Method, MethodInputs, StepLoss

__all__ = ["AnyMethod", "Method", "MethodInputs", "StepLoss", "build_method", "method_class"]

AnyMethod = Method[Any, Any]


def method_class(config: MethodConfig) -> type[AnyMethod]:
    """The class of a config's method: a plugin's, or `METHOD` in the module of its name.

    Raises:
        PluginError: The method's plugin is not loaded; only a study names it.
    """
    registered = METHODS[config.name]
    if isinstance(registered.implementation, type):
        return registered.implementation
    if registered.implementation is not None:
        from tune_sentcl.methods.embedding_losses import loss_class

        return loss_class(config)
    if registered.plugin:
        rule, move = "the method's plugin must be given", f"Give --plugin {registered.plugin}."
        raise PluginError(Fault("method.name", value=config.name, rule=rule, move=move))
    module = import_module(f"tune_sentcl.methods.{config.name}")
    method: type[AnyMethod] = module.METHOD
    return method


def build_method(config: TrialConfig, encoder: Any, inputs: MethodInputs) -> AnyMethod:
    """Make a trial's method on an `Encoder`, or a `FrozenEncoder` if it `freezes_encoder`."""
    return method_class(config.method)(config.method, encoder, inputs)
