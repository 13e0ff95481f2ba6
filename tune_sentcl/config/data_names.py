"""Parse the names of a user's data: columns, mixed sources, custom evaluation tasks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic_core import PydanticCustomError

_ROLES = (
    *("anchor", "positive", "negative", "negatives", "sentence1", "sentence2", "score"),
    *("premise", "hypothesis", "label", "text", "split", "ignored"),
)
_NUMBERED = re.compile(r"(negative|ignored)_[1-9]\d*")
_IGNORED = re.compile(r"ignored(_[1-9]\d*)?")


def joined_columns(value: object) -> object:
    """Write a mapping of roles to columns as text: `anchor=question,positive=answer`.

    Args:
        value: A mapping of roles to a file's columns, or its text.

    Returns:
        The text with sorted roles; a value of another type unchanged.

    Raises:
        PydanticCustomError: A role is unknown, or a column has two roles.
    """
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            raise _refused('written with = in place of :, as { anchor = "question" }')
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {role.strip(): column for role, _, column in parts}
    if not isinstance(value, Mapping):
        return value
    if not all(isinstance(c, str) and c and "," not in c for c in value.values()):
        raise _refused(
            "a mapping of roles to names of columns, and a name must not contain a comma"
        )
    strange = [role for role in value if role not in _ROLES and not _NUMBERED.fullmatch(role)]
    if strange:
        roles = ", ".join((*_ROLES, "negative_1, negative_2 ...", "ignored_1, ignored_2 ..."))
        raise _refused(
            f"a mapping whose keys are roles, but {strange[0]} is not a role; the roles "
            f"are {roles}"
        )
    names = list(value.values())
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _refused(f"a mapping that gives each column one role, but {twice[0]} has two roles")
    return ",".join(f"{role}={value[role]}" for role in sorted(value))


def is_ignored(role: str) -> bool:
    """Whether a role says that a column is not read."""
    return bool(_IGNORED.fullmatch(role))


def columns_of(text: str) -> dict[str, str]:
    """By role, the name of the file's column, from the text in a config."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


def _refused(rule: str) -> PydanticCustomError:
    return PydanticCustomError("columns", "Input should be {rule}", {"rule": rule})


_JOIN = " + "


def joined_names(value: object) -> object:
    """Normalize a list of sources to its text in a config; other values stay unchanged.

    Raises:
        PydanticCustomError: A plus lacks a source on one side.
    """
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        value = _JOIN.join(value)
    if not isinstance(value, str) or _JOIN.strip() not in value.split():
        return value
    names = [name.strip() for name in f" {value} ".split(_JOIN)]
    if not all(names):
        rule = "Input should be a source, or several separated by ' + '"
        raise PydanticCustomError("sources", rule)
    return _JOIN.join(names)


def source_names(source: str) -> tuple[str, ...]:
    """The sources in a `data.source`."""
    return tuple(source.split(_JOIN))


def is_toy(source: str) -> bool:
    """Whether a `data.source` names only the toy set."""
    return set(source_names(source)) == {"toy"}


SENTEVAL = (
    *("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"),
    *("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICK-E"),
)
"""SentEval's tasks; no other task may have one of these names."""

COST = "cost"
"""The task whose scores are what an encoder costs in use; no other task may have this name."""

MTEB = "mteb:"
"""The prefix of an MTEB task's name."""

PLUGIN = "plugin:"
"""The prefix of the name of a plugin's task."""

_NAME = re.compile(r"[A-Za-z][\w.()-]{0,79}", re.ASCII)


@dataclass(frozen=True)
class OwnSource:
    """One entry of `evaluation.own`.

    Attributes:
        name: The task's name in the study.
        path: A file or a folder; empty for a task of MTEB or of a plugin.
        task: Its name in MTEB; empty for other tasks.
        plugin: Its name in a plugin; empty for other tasks.
    """

    name: str
    path: str = ""
    task: str = ""
    plugin: str = ""


def own_source(entry: str) -> OwnSource:
    """Parse `name=path`, `PREFIX:TASK` or `name=PREFIX:TASK`; a prefix is `mteb` or `plugin`.

    Raises:
        ValueError: The entry is malformed or the name is taken; the text states the rule.
    """
    if entry.startswith((MTEB, PLUGIN)):
        entry = f"{entry.partition(':')[2]}={entry}"
    name, _, path = entry.partition("=")
    prefix = next((prefix for prefix in (MTEB, PLUGIN) if path.startswith(prefix)), "")
    if not path.removeprefix(prefix):
        raise ValueError("NAME=PATH, where PATH is a file, a folder, mteb:TASK or plugin:TASK")
    if not _NAME.fullmatch(name):
        raise ValueError(
            "NAME=PATH, where NAME begins with a letter and contains only letters, digits, "
            "'_', '-' and '.'"
        )
    if spelled_alike(name) in {spelled_alike(task) for task in (*SENTEVAL, COST)}:
        rule = (
            f"named differently from SentEval's tasks and {COST}, but {name} is one of these names"
        )
        raise ValueError(f"{rule}: mine={prefix}{name}" if prefix else rule)
    kinds = {MTEB: "task", PLUGIN: "plugin", "": "path"}
    return OwnSource(name, **{kinds[prefix]: path.removeprefix(prefix)})


def own_sources(entries: Sequence[str]) -> tuple[OwnSource, ...]:
    """Parse all entries.

    Raises:
        ValueError: An entry is invalid (see `own_source`), or two entries have the same name.
    """
    sources = tuple(own_source(entry) for entry in entries)
    names = [spelled_alike(source.name) for source in sources]
    twice = [s.name for s, name in zip(sources, names, strict=True) if names.count(name) > 1]
    if twice:
        raise ValueError(f"a list of different names, but {twice[-1]} occurs twice")
    return sources


def spelled_alike(task: str) -> str:
    """A task's name without case and hyphens, which users may spell differently."""
    return task.casefold().replace("-", "")
