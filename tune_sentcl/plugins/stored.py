"""A study's records of plugins' definitions, with which it can be read without the plugins."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, create_model
from pydantic.dataclasses import dataclass

from tune_sentcl.config import (
    METHODS,
    MethodBase,
    PairMethodConfig,
    Registered,
    Rows,
    knobs,
    register_all,
)
from tune_sentcl.config.catalogue import Kind, section_knobs
from tune_sentcl.config.embedding_methods import (
    EmbeddingLossConfig,
    GradedConfig,
    TripletRowsConfig,
)
from tune_sentcl.config.tables import ChunkedConfig, TrainerConfig
from tune_sentcl.plugins.extensions import EXTENSIONS

Base = Literal["graded", "triplets", "embeddings", "labeled_pairs", "chunked", "trainer", "any"]
BASES: dict[Base, type[MethodBase]] = {
    "graded": GradedConfig,
    "triplets": TripletRowsConfig,
    "embeddings": EmbeddingLossConfig,
    "labeled_pairs": PairMethodConfig,
    "chunked": ChunkedConfig,
    "trainer": TrainerConfig,
    "any": MethodBase,
}
"""The base classes of methods' configs; a subclass precedes its own bases."""

_TYPES: dict[Kind, Any] = {"float": float | None, "int": int | None, "bool": bool | None}
"""The type of a stored hyperparameter; columns of text accept any type (a count or `all`)."""


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="ignore"))
class StoredMethod:
    """A plugin's method, as a study records it.

    Attributes:
        name: The value of `method.name`.
        plugin: The plugin's name.
        fingerprint: A hash of its code, with which the study's last search ran.
        base: The base class of its config.
        rows: As in `MethodBase`.
        takes_steps: As in `MethodBase`.
        freezes_encoder: As in `MethodBase`.
        knobs: The type and the default of each hyperparameter that the plugin added.
    """

    name: str
    plugin: str
    fingerprint: str
    base: Base
    rows: Rows
    takes_steps: bool
    freezes_encoder: bool
    knobs: Mapping[str, tuple[Kind, Any]]


def base_of(config: type[MethodBase]) -> Base:
    """The first of `BASES` from which a method's config derives."""
    return next(name for name, base in BASES.items() if issubclass(config, base))


def stored_methods(plugins: Collection[str]) -> list[StoredMethod]:
    """Records of the registered methods that these plugins define."""
    return [_stored(one) for one in METHODS.values() if one.plugin in plugins]


def _stored(one: Registered) -> StoredMethod:
    base = base_of(one.config)
    common = {f"method.{name}" for name in BASES[base].model_fields}
    own = {
        knob.key.removeprefix("method."): (knob.kind, knob.default(one.name))
        for knob in section_knobs("method", one.name, one.config)
        if knob.key not in common
    }
    rows = one.config.model_construct(name=one.name).rows
    of = rows, one.config.takes_steps, one.config.freezes_encoder
    return StoredMethod(one.name, one.plugin, one.fingerprint, base, *of, own)


def register_stored(methods: Iterable[StoredMethod]) -> None:
    """Register methods whose plugin is not loaded, so that trials can be read, but not trained.

    A hyperparameter whose column has another type in this process is left out.
    """
    for one in methods:
        if one.name not in METHODS:
            known = knobs()
            fields: dict[str, Any] = {
                name: (_TYPES.get(kind, Any), default)
                for name, (kind, default) in one.knobs.items()
                if f"method.{name}" not in known or known[f"method.{name}"].kind == kind
            }
            fields["name"] = (Literal[one.name], ...)
            flags = {"takes_steps": one.takes_steps, "freezes_encoder": one.freezes_encoder}
            base: Any = type(one.name, (BASES[one.base],), {**flags, "rows": _reading(one.rows)})
            own = Registered(create_model(one.name, __base__=base, **fields), None, one.plugin)
            register_all([own])


def _reading(rows: Rows) -> property:
    return property(lambda _: rows)


def stored_names(plugins: Collection[str]) -> dict[str, str]:
    """The plugin of each custom task and source, by the name of the task or source in a config."""
    return {
        f"plugin:{name}" if kind == "task" else name: one.plugin
        for (kind, name), one in EXTENSIONS.items()
        if kind != "watcher" and one.plugin in plugins
    }
