"""The catalogue of hyperparameters: every key of the config that a user can set.

It is read from the config classes. Methods and optimizers are unions, whose members are
distinguished by `name`. The owners of a hyperparameter are the members that have it; the default
may differ between owners.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tune_sentcl.config.registry import METHODS, cached
from tune_sentcl.config.sections import Auto
from tune_sentcl.config.tables import Values
from tune_sentcl.config.trial import TrialConfig

Kind = Literal["float", "int", "bool", "str", "list", "ints"]


@dataclass(frozen=True)
class Knob:
    """One settable key of the config.

    Attributes:
        key: The dotted key, as on the command line: `method.lambda`.
        kind: The column type in a study.
        meanings: Its meaning and range by owner, with the keys of `defaults`.
        defaults: The default by owner; outside unions, the only key is "". None if there is no
            default.
        may_be_unset: Whether None is one of its values.
    """

    key: str
    kind: Kind
    meanings: Mapping[str, str]
    defaults: Mapping[str, Any]
    may_be_unset: bool = False

    @property
    def section(self) -> str:
        """The table that holds it; empty for the seed."""
        return self.key.rpartition(".")[0]

    @property
    def owners(self) -> tuple[str, ...]:
        """The members of its union that have it; empty outside unions."""
        return tuple(name for name in self.defaults if name)

    def default(self, owner: str = "") -> Any:
        """Its default for an owner; for an unknown name, that of the first owner."""
        return self.defaults.get(owner, next(iter(self.defaults.values())))

    def meaning(self, owner: str = "") -> str:
        """Its meaning for an owner; for an unknown name, that of the first owner."""
        return self.meanings.get(owner, next(iter(self.meanings.values())))


@cached
def knobs() -> Mapping[str, Knob]:
    """Every key of the config by its dotted name, in the order of the config."""
    known: dict[str, Knob] = {}
    for section, field in TrialConfig.model_fields.items():
        tables = dict(union_members(section))
        if not tables and _is_table(field.annotation):
            tables = {"": field.annotation}
        for owner, table in tables.items():
            for knob in section_knobs(section, owner, table):
                known[knob.key] = _joined(known[knob.key], knob) if knob.key in known else knob
        if not tables:
            known[section] = _knob(section, "", field)
    return types.MappingProxyType(known)


@cached
def union_members(section: str) -> Mapping[str, Any]:
    """The tables of a section by name; empty if the section has one table, or is a value."""
    if section == "method":
        return {name: registered.config for name, registered in METHODS.items()}
    annotation = TrialConfig.model_fields[section].annotation
    tables = [member for member in typing.get_args(annotation) if _is_table(member)]
    names = (typing.get_args(table.model_fields["name"].annotation)[0] for table in tables)
    return types.MappingProxyType(dict(zip(names, tables, strict=True)))


def belongs(key: str, values: Values) -> bool:
    """Whether a key exists for the method and optimizer that `values` name.

    True for an unknown key, which other checks report. If `values` name no method or an unknown
    one, all of the section's hyperparameters belong; without an optimizer's name, AdamW is meant.
    """
    knob = knobs().get(key)
    if knob is None or not knob.owners:
        return True
    naming = knobs()[f"{knob.section}.name"]
    member = values.get(naming.key, naming.default())
    return member in knob.owners or member not in naming.owners


def fitting(values: Values) -> dict[str, Any]:
    """Drop the hyperparameters that the method and optimizer in `values` do not have."""
    return {key: value for key, value in values.items() if belongs(key, values)}


def short_name(key: str) -> str:
    """A hyperparameter's heading in tables: its last part, for `method.name` the word `method`."""
    section, _, last = key.rpartition(".")
    return section if last == "name" else last


def section_knobs(section: str, owner: str, table: Any) -> list[Knob]:
    """The hyperparameters of one table of a section."""
    return [
        _knob(f"{section}.{field.alias or name}", owner, field)
        for name, field in table.model_fields.items()
    ]


def _knob(key: str, owner: str, field: FieldInfo) -> Knob:
    section, _, name = key.partition(".")
    default_text = f"name of the {section}" if name == "name" else f"a knob of {owner}"
    meaning = field.description or default_text
    default = None if field.is_required() else field.default
    if isinstance(default, tuple):
        default = list(default)  # configs in a study come from JSON, which has lists
    may_be_unset = type(None) in typing.get_args(field.annotation)
    return Knob(key, _kind(field.annotation), {owner: meaning}, {owner: default}, may_be_unset)


def _joined(first: Knob, again: Knob) -> Knob:
    """Merge two members' hyperparameters of one key, because they share a study's column."""
    if first.kind != again.kind:
        raise TypeError(f"{first.key} is {first.kind} in one member, {again.kind} in another")
    return replace(
        first,
        meanings={**first.meanings, **again.meanings},
        defaults={**first.defaults, **again.defaults},
        may_be_unset=first.may_be_unset or again.may_be_unset,
    )


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _kind(annotation: Any) -> Kind:
    members = {annotation}
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = set(typing.get_args(annotation)) - {type(None), Auto}
    if len(members) == 1:
        (member,) = members
        for kind, name in ((bool, "bool"), (int, "int"), (float, "float")):
            if member is kind:
                return typing.cast(Literal["float", "int", "bool"], name)
        if typing.get_origin(member) is tuple:
            return "ints" if typing.get_args(member)[0] is int else "list"
    return "str"  # a union such as `int | Literal["all"]` is stored as text
