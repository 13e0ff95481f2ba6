"""Names of a user's own data in a config: columns, mixed sources, own evaluation tasks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic_core import PydanticCustomError

_ROLES = (
    *("anchor", "positive", "negative", "negatives", "sentence1", "sentence2", "score"),
    *("premise", "hypothesis", "label", "text"),
)
_NUMBERED = re.compile(r"negative_[1-9]\d*")


def joined_columns(value: object) -> object:
    """A mapping of columns as the text that a config holds: `anchor=question,positive=answer`.

    Args:
        value: A mapping of roles to a file's columns, or the text of one.

    Returns:
        The text with the roles sorted; another kind of value as it is.

    Raises:
        PydanticCustomError: A role is none, or a column has two roles.
    """
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {role.strip(): column for role, _, column in parts}
    if not isinstance(value, Mapping):
        return value
    if not all(isinstance(c, str) and c and "," not in c for c in value.values()):
        raise _refused("a mapping of roles to names of columns, and no comma in a name")
    strange = [role for role in value if role not in _ROLES and not _NUMBERED.fullmatch(role)]
    if strange:
        known = ", ".join((*_ROLES, "negative_1, negative_2 ..."))
        raise _refused(f"a mapping of roles, and {strange[0]} is none: the roles are {known}")
    names = list(value.values())
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _refused(f"a mapping of one role to one column, and {twice[0]} has two roles")
    return ",".join(f"{role}={value[role]}" for role in sorted(value))


def columns_of(text: str) -> dict[str, str]:
    """The file's column of each role, from the text of a config."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


def _refused(rule: str) -> PydanticCustomError:
    return PydanticCustomError("columns", "Input should be {rule}", {"rule": rule})


_JOIN = " + "


def joined_names(value: object) -> object:
    """A list of sources as the text that a config holds; anything else as it is.

    Raises:
        PydanticCustomError: There is nothing on one side of a plus.
    """
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        value = _JOIN.join(value)
    if not isinstance(value, str) or _JOIN.strip() not in value.split():
        return value
    names = [name.strip() for name in f" {value} ".split(_JOIN)]
    if not all(names):
        rule = "Input should be a source, or several with ' + ' between them"
        raise PydanticCustomError("sources", rule)
    return _JOIN.join(names)


def source_names(source: str) -> tuple[str, ...]:
    """The sources that a `data.source` names, one or more."""
    return tuple(source.split(_JOIN))


def is_toy(source: str) -> bool:
    """Whether a `data.source` names nothing but the toy."""
    return set(source_names(source)) == {"toy"}


SENTEVAL = (
    *("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"),
    *("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICK-E"),
)
"""The tasks of SentEval, whose names no other task may have."""

MTEB = "mteb:"
"""What stands before the name of a task of MTEB."""

_NAME = re.compile(r"[A-Za-z][\w.()-]{0,79}", re.ASCII)


@dataclass(frozen=True)
class OwnSource:
    """One entry of `evaluation.own`.

    Attributes:
        name: What its scores are called.
        path: A file or a folder; empty for a task of MTEB.
        task: Its name in MTEB, where it is one of that.
    """

    name: str
    path: str = ""
    task: str = ""


def own_source(entry: str) -> OwnSource:
    """Read `name=path`, `mteb:TASK` or `name=mteb:TASK`.

    Raises:
        ValueError: It is neither, or the name is taken; says which rule it breaks.
    """
    if entry.startswith(MTEB):
        entry = f"{entry.removeprefix(MTEB)}={entry}"
    name, _, path = entry.partition("=")
    if not path.removeprefix(MTEB):
        raise ValueError("name=path, with a file or a folder, or mteb:TASK")
    if not _NAME.fullmatch(name):
        raise ValueError("a name of letters, digits, '_', '-' and '.', a letter first, then =path")
    if spelled_alike(name) in {spelled_alike(task) for task in SENTEVAL}:
        rule = f"named otherwise than SentEval's tasks, which {name} is"
        raise ValueError(f"{rule}: mine=mteb:{name}" if path.startswith(MTEB) else rule)
    if path.startswith(MTEB):
        return OwnSource(name, task=path.removeprefix(MTEB))
    return OwnSource(name, path)


def own_sources(entries: Sequence[str]) -> tuple[OwnSource, ...]:
    """Read all entries.

    Raises:
        ValueError: As `own_source` says, or two have one name.
    """
    found = tuple(own_source(entry) for entry in entries)
    names = [spelled_alike(source.name) for source in found]
    twice = [s.name for s, name in zip(found, names, strict=True) if names.count(name) > 1]
    if twice:
        raise ValueError(f"a list of different names, and {twice[-1]} is there twice")
    return found


def spelled_alike(task: str) -> str:
    """A task's name without what people spell differently: case and hyphens."""
    return task.casefold().replace("-", "")
