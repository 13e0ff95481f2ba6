"""The files of a table, and the rule that picks the one file whose rows of a trial are effective.

A table is a folder with three kinds of files:

- A trial file `ID.LABEL.parquet` has the rows of one trial.
- A segment `all-0001.EPOCH.parquet` (0002, ...) has the rows of 256 trials and lists these trials.
- A compacted file `all.EPOCH.parquet` has the rows of all earlier files.

Segments and compacted files are shared files. Each driver of a study has a number, its epoch,
higher than those of all earlier drivers. A driver never changes a file of another epoch. It
completes a new file before it deletes the files whose rows it has taken over, lowest first, so a
crash leaves no trial with two effective rows.

In `trials` a label is the epoch of the driver that wrote the row. Files are ranked by epoch, then
compacted file, segments, trial files. The highest file with a trial is effective, so rows that an
expired driver writes late are not.
In `scores` and `curves` a label is the attempt, `EPOCH-TRY`. The trial file that the trial's row
names is effective, else the highest segment. A file without a label is lowest.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.store.files import StudyFiles

CURRENT = "current"
"""The object with a trial's committed checkpoint version, because object stores cannot rename."""

_ALL = "all"
_HELD = b"tune_sentcl.trials"
_SHARED = re.compile(r"all(?:-([0-9]+))?(?:\.([0-9]+))?")
_TRIAL_ID = re.compile(r"(?!all)[A-Za-z0-9_-]+")
_LABEL = re.compile(r"[0-9]+(?:-[0-9]+)?")


@dataclass(frozen=True)
class Listing:
    """The files of a table, by names without the ending `.parquet`.

    Attributes:
        labels: The labels of each trial's trial files, lowest first; trials sorted.
        shared: The shared files, lowest first, each with its version (`Storage.versions`).
    """

    labels: Mapping[str, tuple[str, ...]]
    shared: Mapping[str, Any]

    @classmethod
    def of(cls, files: StudyFiles, folder: str) -> Self:
        """List a table."""
        found = {
            name.removesuffix(".parquet"): version
            for name, version in files.versions(folder).items()
            if name.endswith(".parquet")
        }
        shared = sorted(filter(_SHARED.fullmatch, found), key=_rank)
        labels: dict[str, tuple[str, ...]] = {}
        for stem in sorted(found.keys() - shared):
            named = parse_stem(stem)
            if named is not None:
                trial_id, label = named
                labels[trial_id] = tuple(sorted((*labels.get(trial_id, ()), label), key=label_key))
        return cls(labels, {stem: found[stem] for stem in shared})

    @property
    def is_fragmented(self) -> bool:
        """Whether there are segments, or more than one compacted file."""
        return len(self.shared) > 1 or any(_rank(stem)[1] for stem in self.shared)

    def next_segment(self, epoch: int) -> str:
        """The name of the segment that the driver of an epoch writes next."""
        return f"{_ALL}-{max((_rank(s)[1] for s in self.shared), default=0) + 1:04d}.{epoch}"


def compacted_stem(epoch: int) -> str:
    """The compacted file of an epoch, without its ending."""
    return f"{_ALL}.{epoch}" if epoch else _ALL


def trial_stem(trial_id: str, label: str) -> str:
    """The name of a trial file, without its ending.

    Raises:
        ValueError: The id or the label could lead out of the folder or to another file.
    """
    if label and not _LABEL.fullmatch(label):
        raise ValueError(f"label {label!r} must be EPOCH or EPOCH-TRY")
    return f"{validated_trial_id(trial_id)}.{label}" if label else validated_trial_id(trial_id)


def parse_stem(stem: str) -> tuple[str, str] | None:
    """The trial and the label of a trial file's name; None for other names."""
    trial_id, _, label = stem.partition(".")
    if not _TRIAL_ID.fullmatch(trial_id) or (label and not _LABEL.fullmatch(label)):
        return None
    return None if stem.endswith(".") else (trial_id, label)


def label_key(label: str) -> tuple[int, ...]:
    """The sort key of labels: epoch, then try; no label comes first."""
    return tuple(int(part) for part in label.split("-")) if label else (0,)


def epoch_of(stem: str) -> int:
    """The epoch in a file's name; 0 without one."""
    if _SHARED.fullmatch(stem):
        return _rank(stem)[0]
    named = parse_stem(stem)
    return label_key(named[1])[0] if named else 0


def _rank(stem: str) -> tuple[int, int]:
    """Epoch and segment number of a shared file; a compacted file has the number 0."""
    match = _SHARED.fullmatch(stem)
    return (int(match[2] or 0), int(match[1] or 0)) if match else (0, 0)


def file_of(folder: str, stem: str) -> str:
    """The path of a table's file in the study."""
    return f"{folder}/{stem}.parquet"


def is_trial(name: str) -> bool:
    """Whether a name is a valid trial id."""
    return bool(_TRIAL_ID.fullmatch(name))


def validated_trial_id(trial_id: str) -> str:
    """Return a trial's id; ValueError if it could lead out of its folder or to a shared file."""
    if not _TRIAL_ID.fullmatch(trial_id):
        rule = f"must have letters, digits, - and _ only, and must not begin with {_ALL!r}"
        raise ValueError(f"trial_id {trial_id!r} {rule}")
    return trial_id


def with_listed_trials(schema: pa.Schema, trial_ids: Iterable[str]) -> pa.Schema:
    """The schema of a segment, which lists its trials, because some have no rows in it."""
    listed_trials = ",".join(trial_ids).encode()
    return schema.with_metadata({**(schema.metadata or {}), _HELD: listed_trials})


def listed_trials_of(schema: pa.Schema) -> frozenset[str]:
    """The trials that the schema of a segment lists."""
    listed_trials = (schema.metadata or {}).get(_HELD, b"").decode(errors="replace")
    return frozenset(listed_trials.split(",")) if listed_trials else frozenset()


@dataclass(frozen=True)
class EffectiveFiles:
    """The effective rows in the files of a table.

    Attributes:
        labels: The label of each effective trial file, by trial.
        hidden_trials: For each shared file, highest first, the trials whose rows in it are not
            effective; None for a file without effective rows.
    """

    labels: Mapping[str, str]
    hidden_trials: Mapping[str, frozenset[str] | None]

    @classmethod
    def of(
        cls,
        own_labels: Mapping[str, str],
        holds: Mapping[str, frozenset[str]],
        *,
        ranked: bool,
    ) -> Self:
        """Compare files by rank.

        Args:
            own_labels: The label of the trial file that is a candidate, by trial.
            holds: The trials that each shared file lists, lowest first; compacted files list none.
            ranked: Whether trial files have a rank, as in `trials`; else all are effective.
        """
        # The newest compacted file contains all older files, except those written too late.
        epoch = max((epoch_of(stem) for stem in holds if not _rank(stem)[1]), default=0)
        trials_by_epoch: dict[int, list[str]] = {}
        for trial_id, label in own_labels.items():
            rank = label_key(label)[0] if ranked else _NO_EPOCH
            if rank >= epoch:
                trials_by_epoch.setdefault(rank, []).append(trial_id)
        seen: set[str] = set()
        effective: dict[str, str] = {}
        hidden_trials: dict[str, frozenset[str] | None] = {}
        for stem in reversed(list(holds)):
            epoch_of_file, number = _rank(stem)
            if epoch_of_file < epoch:
                hidden_trials[stem] = None
                continue
            for rank in [rank for rank in trials_by_epoch if rank >= epoch_of_file]:
                new_names = [name for name in trials_by_epoch.pop(rank) if name not in seen]
                effective.update((name, own_labels[name]) for name in new_names)
                seen.update(new_names)
            hidden_trials[stem] = holds[stem] & seen if number else frozenset(seen)
            seen |= holds[stem]
        for names in trials_by_epoch.values():
            effective.update((name, own_labels[name]) for name in names if name not in seen)
        return cls(effective, hidden_trials)


_NO_EPOCH = 1 << 62
