"""Methods of plugins as a study records them, so that it can be read without the plugins."""

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, create_model
from pydantic.dataclasses import dataclass

from tune_sentcl.config.catalogue import Kind, knobs, section_knobs
from tune_sentcl.config.registry import METHODS, Registered, register_all
from tune_sentcl.config.tables import MethodBase, Rows

_STRICT = ConfigDict(strict=True, extra="ignore")
_TYPES: dict[Kind, Any] = {
    "float": float,
    "int": int,
    "bool": bool,
    "str": str,
    "list": tuple[str, ...],
    "ints": tuple[int, ...],
}


@dataclass(frozen=True, config=_STRICT)
class StoredKnob:
    """A knob; the attributes are those of `Knob`, for one method."""

    key: str
    kind: Kind
    description: str
    default: Any
    may_be_unset: bool


@dataclass(frozen=True, config=_STRICT)
class StoredMethod:
    """A plugin's method.

    Attributes:
        name: The value of `method.name`.
        plugin: The plugin's name.
        rows: The rows that it reads.
        takes_steps: As in `MethodBase`.
        freezes_encoder: As in `MethodBase`.
        knobs: Its knobs without `method.name`.
    """

    name: str
    plugin: str
    rows: Rows
    takes_steps: bool
    freezes_encoder: bool
    knobs: tuple[StoredKnob, ...]


def stored_methods(plugins: Collection[str]) -> list[StoredMethod]:
    """Records of the registered methods of plugins, given by their names."""
    return [_record(one) for one in METHODS.values() if one.plugin in plugins]


def _record(one: Registered) -> StoredMethod:
    config = one.config
    found = [
        StoredKnob(k.key, k.kind, k.description, k.default(one.name), k.may_be_unset)
        for k in section_knobs("method", one.name, config)
        if k.key != "method.name"
    ]
    rows = config(name=one.name).rows
    return StoredMethod(
        one.name, one.plugin, rows, config.takes_steps, config.freezes_encoder, tuple(found)
    )


class _Stored(MethodBase):
    stored_rows: ClassVar[Rows] = "sentences"

    @property
    def rows(self) -> Rows:
        """The rows that the method read."""
        return self.stored_rows


def register_stored(methods: Iterable[StoredMethod]) -> None:
    """Make methods known whose plugins are not loaded; they can be read, not trained."""
    for one in methods:
        if one.name not in METHODS:
            register_all([Registered(_config(one), None, one.plugin)])


def _config(method: StoredMethod) -> type[MethodBase]:
    fields: dict[str, Any] = {}
    known = knobs()
    for knob in method.knobs:
        if knob.key in known and known[knob.key].kind != knob.kind:
            continue  # another plugin's knob has this name and a column of another kind
        kind = _TYPES[knob.kind]
        strict = knob.kind not in ("list", "ints")
        default = knob.default if strict else tuple(knob.default or ())
        field = Field(default, description=knob.description, strict=strict)
        fields[knob.key.partition(".")[2]] = (kind | None if knob.may_be_unset else kind, field)
    fields["name"] = (Literal[method.name], ...)
    made: type[_Stored] = create_model(f"{method.name}_stored", __base__=_Stored, **fields)
    made.stored_rows, made.takes_steps = method.rows, method.takes_steps
    made.freezes_encoder = method.freezes_encoder
    return made
