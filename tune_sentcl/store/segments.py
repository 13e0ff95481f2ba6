"""Which files a table has, and which of them counts for a trial.

A table is a folder. A trial's rows are first in a file of its own, `ID.parquet`; whoever gathers
brings 256 of those into a segment, `all-0001.parquet` and on; whoever compacts brings everything
into `all.parquet`. For each trial one file counts: its own, else the highest segment that holds
it, else `all.parquet`. So a file is never changed, and whatever dies in between leaves no row
twice: a successor is whole before what it succeeds goes, lowest first.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.store.files import StudyFiles

COMPACTED = "all"
"""The compacted file's name, without its ending."""

_HELD = b"tune_sentcl.trials"
_SEGMENT = re.compile(r"all-([0-9]+)")
_TRIAL_ID = re.compile(r"(?!all)[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Listing:
    """The files of a table, without their endings.

    Attributes:
        own: Trials that have a file of their own, sorted.
        shared: The compacted file and the segments, lowest first, each with what tells one
            version of it from another.
    """

    own: tuple[str, ...]
    shared: Mapping[str, Any]

    @classmethod
    def of(cls, files: StudyFiles, folder: str) -> Self:
        """List a table.

        Raises:
            StudyError: The disk refused.
        """
        found = {
            name.removesuffix(".parquet"): version
            for name, version in files.versions(folder).items()
            if name.endswith(".parquet")
        }
        shared = sorted((s for s in found if s == COMPACTED or _SEGMENT.fullmatch(s)), key=_rank)
        own = tuple(sorted(filter(is_own, found)))
        return cls(own, {stem: found[stem] for stem in shared})

    def next_segment(self) -> str:
        """The name of the segment to be written next."""
        return f"{COMPACTED}-{max(map(_rank, self.shared), default=0) + 1:04d}"


def is_own(stem: str) -> bool:
    """Whether a file of that name is a trial's own."""
    return bool(_TRIAL_ID.fullmatch(stem))


def _rank(stem: str) -> int:
    match = _SEGMENT.fullmatch(stem)
    return int(match[1]) if match else 0


def file_of(folder: str, stem: str) -> str:
    """The name of a file of a table."""
    return f"{folder}/{stem}.parquet"


def trial_file(folder: str, trial_id: str) -> str:
    """The name of a trial's own file in a table's folder."""
    return file_of(folder, checked(trial_id))


def checked(trial_id: str) -> str:
    """The same trial's id, if it is one.

    Raises:
        ValueError: It could leave its folder, or be taken for a segment.
    """
    if not is_own(trial_id):
        rule = f"letters and digits, not beginning with {COMPACTED!r}"
        raise ValueError(f"{trial_id!r} is no trial_id: {rule}")
    return trial_id


def holding(schema: pa.Schema, trial_ids: Iterable[str]) -> pa.Schema:
    """The schema of a segment, which says what trials it holds: one may have no rows there."""
    held = ",".join(trial_ids).encode()
    return schema.with_metadata({**(schema.metadata or {}), _HELD: held})


def held_by(schema: pa.Schema) -> frozenset[str]:
    """The trials that a segment of this schema says it holds."""
    held = (schema.metadata or {}).get(_HELD, b"").decode()
    return frozenset(held.split(",")) if held else frozenset()


def hidden(own: Iterable[str], holds: dict[str, frozenset[str]]) -> dict[str, set[str]]:
    """What does not count in each shared file, because a higher one holds it.

    Args:
        own: Trials with files of their own.
        holds: What each shared file holds, lowest first.
    """
    seen = set(own)
    found: dict[str, set[str]] = {}
    for stem in reversed(holds):
        found[stem] = set(seen) if stem == COMPACTED else seen & holds[stem]
        seen |= holds[stem]
    return found
