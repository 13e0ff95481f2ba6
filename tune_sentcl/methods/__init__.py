"""Methods, one file each, found by their name: `methods/scl.py` holds the method `scl`."""

from importlib import import_module
from typing import Any

from tune_sentcl.config import MethodConfig, TrialConfig
from tune_sentcl.methods.base import Method, Setting, StepLoss

__all__ = ["AnyMethod", "Method", "Setting", "StepLoss", "build_method", "method_class"]

AnyMethod = Method[Any, Any]


def method_class(config: MethodConfig) -> type[AnyMethod]:
    """The class of the method that a config names: the `METHOD` of the module of that name."""
    module = import_module(f"tune_sentcl.methods.{config.name}")
    found: type[AnyMethod] = module.METHOD
    return found


def build_method(config: TrialConfig, encoder: Any, setting: Setting) -> AnyMethod:
    """Make the method that a config names.

    Args:
        config: The trial.
        encoder: An `Encoder`, or a `FrozenEncoder` where the method `freezes_encoder`.
        setting: Options of the encoder, source of the starting weights, and the resource.
    """
    return method_class(config.method)(config.method, encoder, setting)
