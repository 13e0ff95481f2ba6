"""Yardsticks of the user's own: how they are named, and which names are taken."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
