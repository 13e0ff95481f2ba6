"""The registry of training methods: built-in methods, and those of the loaded plugins."""

import functools
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, ParamSpec, TypeVar, Union

from pydantic import BeforeValidator, Field, SerializeAsAny, TypeAdapter

from tune_sentcl.config.tables import MethodBase

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Registered:
    """A method.

    Attributes:
        config: The class of its hyperparameters.
        implementation: The class of the method, or the function of a plugin's loss. None for a
            built-in method, because `METHOD` in `tune_sentcl.methods.NAME` imports torch.
        plugin: The plugin that registered the method; empty for a built-in method.
        fingerprint: A hash of the plugin's code; empty for a built-in method.
    """

    config: type[MethodBase]
    implementation: Callable[..., Any] | None = None
    plugin: str = ""
    fingerprint: str = ""
    kind: ClassVar = "method"

    @property
    def name(self) -> str:
        """The value of `method.name`."""
        value: str = typing.get_args(self.config.model_fields["name"].annotation)[0]
        return value


METHODS: dict[str, Registered] = {}
"""The methods by name; only `register_all` may change it."""

_CACHED: list[Callable[[], None]] = []


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function of the registered methods, until the methods change."""
    cached_function = functools.cache(function)
    _CACHED.append(cached_function.cache_clear)
    return typing.cast(Callable[P, T], cached_function)


def register_all(methods: Iterable[Registered], dropped: Iterable[str] = ()) -> None:
    """Register methods and drop others; a method replaces a method of the same name."""
    for name in dropped:
        del METHODS[name]
    METHODS.update({method.name: method for method in methods})
    for clear in _CACHED:
        clear()


def plugin_of(method: str) -> str:
    """The plugin of a method; empty for a built-in or unknown method."""
    return METHODS[method].plugin if method in METHODS else ""


def code_of(method: str) -> str:
    """The fingerprint of a method's plugin; empty for a built-in or unknown method."""
    return METHODS[method].fingerprint if method in METHODS else ""


def is_trainer(method: str) -> bool:
    """Whether a method is a plugin's function that returns a trainer.

    The trainer's own scores then belong to a task that has the method's name.
    """
    return method in METHODS and METHODS[method].config.is_trainer


@cached
def _union() -> TypeAdapter[MethodBase]:
    members: Any = Union[tuple(method.config for method in METHODS.values())]  # noqa: UP007
    return TypeAdapter(Annotated[members, Field(discriminator="name")])


MethodConfig = Annotated[
    SerializeAsAny[MethodBase], BeforeValidator(lambda value: _union().validate_python(value))
]
"""The hyperparameters of any registered method, distinguished by `name`."""
