"""Every settable key of the config, read off the tables' classes."""

import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from tune_sentcl.config.trial import TrialConfig


@dataclass(frozen=True)
class Knob:
    """One settable key of the config union.

    Attributes:
        key: Dotted, as on the command line: `method.lambda`.
        kind: The column type in a study: `float`, `int`, `bool`, `str` or `list`.
        description: What it means, and its range.
        default: The default, or None where there is none.
        methods: The methods that have it; empty when all have.
    """

    key: str
    kind: Literal["float", "int", "bool", "str", "list"]
    description: str
    default: Any
    methods: tuple[str, ...] = ()


@functools.cache
def knobs() -> Mapping[str, Knob]:
    """Every key of the config union by its dotted name, in the order of the config."""
    found: dict[str, Knob] = {}
    for section, field in TrialConfig.model_fields.items():
        if section == "method":
            for member in typing.get_args(field.annotation):
                name = typing.get_args(member.model_fields["name"].annotation)[0]
                for knob in _section_knobs("method", member):
                    before = found.get(knob.key, Knob(knob.key, knob.kind, "", None))
                    found[knob.key] = Knob(
                        knob.key,
                        knob.kind,
                        before.description or knob.description,
                        before.default if before.methods else knob.default,
                        (*before.methods, name),
                    )
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found.update((knob.key, knob) for knob in _section_knobs(section, field.annotation))
        else:
            found[section] = Knob(section, "int", field.description or "", field.default)
    return types.MappingProxyType(found)


def varied(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The knobs in which configurations differ, for tables: `method.name` first, the seed never.

    Args:
        rows: Dotted keys and values; None where a method lacks the key, which is no difference.
    """
    named = [key for key in knobs() if key not in ("seed", "method.name")]
    values = {key: {str(row[key]) for row in rows if row.get(key) is not None} for key in named}
    return ["method.name", *(key for key in named if len(values[key]) > 1)]


def short_name(key: str) -> str:
    """A knob's name as a table's heading: `lambda`, but `method` and `optimizer` for names."""
    section, _, last = key.rpartition(".")
    return section if last == "name" else last


def _section_knobs(section: str, model: type[BaseModel]) -> Iterator[Knob]:
    for name, field in model.model_fields.items():
        default = None if field.is_required() else field.default
        description = field.description or "which method trains the encoder"
        yield Knob(
            f"{section}.{field.alias or name}", _kind(field.annotation), description, default
        )


def _kind(annotation: Any) -> Literal["float", "int", "bool", "str", "list"]:
    members = {annotation}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = set(typing.get_args(annotation)) - {type(None)}
    if len(members) == 1:
        (member,) = members
        for kind, name in ((bool, "bool"), (int, "int"), (float, "float")):
            if member is kind:
                return typing.cast(Literal["float", "int", "bool"], name)
        if typing.get_origin(member) is tuple:
            return "list"
    return "str"  # text, and unions such as a count or "all"
