"""Losses of plugins as a study records them, so that it can be read without the plugins."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, create_model
from pydantic.dataclasses import dataclass

from tune_sentcl.config import METHODS, MethodBase, Registered, knobs, register_all
from tune_sentcl.config.catalogue import Kind, section_knobs
from tune_sentcl.config.embedding_methods import (
    EmbeddingLossConfig,
    GradedConfig,
    TripletRowsConfig,
)

_TYPES: dict[Kind, Any] = {"float": float, "int": int, "bool": bool, "str": str}


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="ignore"))
class StoredLoss:
    """A plugin's loss.

    Attributes:
        name: The value of `method.name`.
        plugin: The plugin's name.
        graded: Whether its rows are pairs with a score; else triplets.
        knobs: The type and the default of each of its own knobs.
    """

    name: str
    plugin: str
    graded: bool
    knobs: Mapping[str, tuple[Kind, Any]]


def stored_losses(plugins: Collection[str]) -> list[StoredLoss]:
    """Records of the registered losses of plugins, given by their names."""
    common = {f"method.{name}" for name in EmbeddingLossConfig.model_fields}
    return [
        StoredLoss(
            one.name,
            one.plugin,
            issubclass(one.config, GradedConfig),
            {
                knob.key.removeprefix("method."): (knob.kind, knob.default(one.name))
                for knob in section_knobs("method", one.name, one.config)
                if knob.key not in common
            },
        )
        for one in METHODS.values()
        if one.plugin in plugins
    ]


def register_stored(losses: Iterable[StoredLoss]) -> None:
    """Register losses that no plugin has registered; they can be read, but not trained.

    A knob whose column has another type in this process is left out.
    """
    for one in losses:
        if one.name not in METHODS:
            known = knobs()
            fields: dict[str, Any] = {
                name: (_TYPES[kind], default)
                for name, (kind, default) in one.knobs.items()
                if f"method.{name}" not in known or known[f"method.{name}"].kind == kind
            }
            base: type[MethodBase] = GradedConfig if one.graded else TripletRowsConfig
            fields["name"] = (Literal[one.name], ...)
            made: Any = create_model(f"{one.name}_config", __base__=base, **fields)
            config: type[MethodBase] = made
            register_all([Registered(config, None, one.plugin)])
