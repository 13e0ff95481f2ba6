"""Which files a table has, and which of them counts for a trial.

A table is a folder. A trial's rows are first in a file of its own, `ID.LABEL.parquet`; whoever
gathers brings 256 of those into a segment, `all-0001.EPOCH.parquet` and on; whoever compacts
brings everything into `all.EPOCH.parquet`. No driver changes another's file, and whatever dies in
between leaves no row twice: a successor is whole before what it succeeds goes, lowest first.

In `trials` a label is the epoch of the driver that wrote the row. Files are ordered by epoch, and
within one from the compacted file by segments to a trial's own; the highest that holds a trial
counts. So nothing counts that a driver writes late, when another has taken over.
In `scores` and `curves` a label is the attempt, `EPOCH-TRY`, that left the file, and the one that
the trial's row names counts, else the highest segment. A file without a label comes first.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.store.files import StudyFiles

CURRENT = "current"
"""The object that says which version of a trial's folder counts, where there are no renamings."""

_ALL = "all"
_HELD = b"tune_sentcl.trials"
_SHARED = re.compile(r"all(?:-([0-9]+))?(?:\.([0-9]+))?")
_TRIAL_ID = re.compile(r"(?!all)[A-Za-z0-9_-]+")
_LABEL = re.compile(r"[0-9]+(?:-[0-9]+)?")


@dataclass(frozen=True)
class Listing:
    """The files of a table, without their endings.

    Attributes:
        own: The labels under which a trial has files of its own, lowest first; trials sorted.
        shared: Compacted files and segments, lowest first, each with what tells one version of it
            from another.
    """

    own: Mapping[str, tuple[str, ...]]
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
        shared = sorted(filter(_SHARED.fullmatch, found), key=_rank)
        own: dict[str, tuple[str, ...]] = {}
        for stem in sorted(found.keys() - shared):
            named = split(stem)
            if named is not None:
                trial_id, label = named
                own[trial_id] = tuple(sorted((*own.get(trial_id, ()), label), key=in_order))
        return cls(own, {stem: found[stem] for stem in shared})

    @property
    def scattered(self) -> bool:
        """Whether there are segments, or more than one compacted file."""
        return len(self.shared) > 1 or any(_rank(stem)[1] for stem in self.shared)

    def next_segment(self, epoch: int) -> str:
        """The name of the segment that the driver of an epoch writes next."""
        return f"{_ALL}-{max((_rank(s)[1] for s in self.shared), default=0) + 1:04d}.{epoch}"


def compacted(epoch: int) -> str:
    """The name of what the driver of an epoch compacts, without its ending."""
    return f"{_ALL}.{epoch}" if epoch else _ALL


def own_stem(trial_id: str, label: str) -> str:
    """The name of a trial's own file, without its ending.

    Raises:
        ValueError: It could leave its folder, or be taken for another.
    """
    if label and not _LABEL.fullmatch(label):
        raise ValueError(f"{label!r} is no label: EPOCH or EPOCH-TRY")
    return f"{checked(trial_id)}.{label}" if label else checked(trial_id)


def split(stem: str) -> tuple[str, str] | None:
    """The trial and the label that a name is made of; None of any other name."""
    trial_id, _, label = stem.partition(".")
    if not _TRIAL_ID.fullmatch(trial_id) or (label and not _LABEL.fullmatch(label)):
        return None
    return None if stem.endswith(".") else (trial_id, label)


def in_order(label: str) -> tuple[int, ...]:
    """What labels are sorted by: epochs, then tries; no label comes first."""
    return tuple(int(part) for part in label.split("-")) if label else (0,)


def epoch_of(stem: str) -> int:
    """The epoch that a name of a file says; 0 where it says none."""
    if _SHARED.fullmatch(stem):
        return _rank(stem)[0]
    named = split(stem)
    return in_order(named[1])[0] if named else 0


def _rank(stem: str) -> tuple[int, int]:
    """Epoch and number of a shared file; a compacted one has the number 0."""
    match = _SHARED.fullmatch(stem)
    return (int(match[2] or 0), int(match[1] or 0)) if match else (0, 0)


def file_of(folder: str, stem: str) -> str:
    """The name of a file of a table."""
    return f"{folder}/{stem}.parquet"


def is_trial(name: str) -> bool:
    """Whether a name is a trial's."""
    return bool(_TRIAL_ID.fullmatch(name))


def checked(trial_id: str) -> str:
    """The same trial's id, if it is one.

    Raises:
        ValueError: It could leave its folder, or be taken for a segment.
    """
    if not _TRIAL_ID.fullmatch(trial_id):
        rule = f"letters and digits, not beginning with {_ALL!r}"
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


@dataclass(frozen=True)
class Counting:
    """What counts in the files of a table.

    Attributes:
        own: The label of each trial's own file that counts.
        hidden: The trials that do not count in each shared file; None: none of them does.
    """

    own: Mapping[str, str]
    hidden: Mapping[str, frozenset[str] | None]

    @classmethod
    def of(
        cls,
        own: Mapping[str, str],
        holds: Mapping[str, frozenset[str]],
        *,
        ranked: bool,
    ) -> Self:
        """Compare files by rank.

        Args:
            own: The label under which each trial's own file would count.
            holds: What each shared file says it holds, lowest first; compacted ones say nothing.
            ranked: Whether own files have a rank, as in `trials`; else all of them count.
        """
        # Whatever is older than the newest compacted file is in it, or came too late.
        epoch = max((epoch_of(stem) for stem in holds if not _rank(stem)[1]), default=0)
        waiting: dict[int, list[str]] = {}
        for trial_id, label in own.items():
            rank = in_order(label)[0] if ranked else _NO_EPOCH
            if rank >= epoch:
                waiting.setdefault(rank, []).append(trial_id)
        seen: set[str] = set()
        counting: dict[str, str] = {}
        hidden: dict[str, frozenset[str] | None] = {}
        for stem in reversed(list(holds)):
            place, number = _rank(stem)
            if place < epoch:
                hidden[stem] = None
                continue
            for rank in [rank for rank in waiting if rank >= place]:
                fresh = [name for name in waiting.pop(rank) if name not in seen]
                counting.update((name, own[name]) for name in fresh)
                seen.update(fresh)
            hidden[stem] = holds[stem] & seen if number else frozenset(seen)
            seen |= holds[stem]
        for names in waiting.values():
            counting.update((name, own[name]) for name in names if name not in seen)
        return cls(counting, hidden)


_NO_EPOCH = 1 << 62
