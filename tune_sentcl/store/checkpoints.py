"""Folders that trials write, atomically: weights of finished trials, states of running ones.

A folder is pending under its attempt's label until the driver promotes it to the trial's own.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tune_sentcl.store.disk import (
    DiskStorage,
    delete_folder,
    delete_tree,
    is_abandoned,
    make_folder,
    sync_folder,
    sync_tree,
    temporary,
)
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.segments import CURRENT, label_key, parse_stem, trial_stem
from tune_sentcl.store.storage import storage_errors

FOLDER = "checkpoints"
"""The study's folder of weights of finished trials."""

STATES = "states"
"""The study's folder of states of running trials."""

_REPLACED = re.compile(r"\.(?P<trial>[A-Za-z0-9_.-]+)\.replaced\..*")


class Checkpoints(Protocol):
    """The checkpoints (or states) of a study's trials."""

    def complete(self) -> set[str]:
        """The trials with a committed checkpoint."""
        ...

    def pending(self) -> list[tuple[str, str]]:
        """The trials and labels of pending checkpoints."""
        ...

    def trials(self) -> set[str]:
        """The trials with a committed or pending checkpoint, by one listing."""
        ...

    def has(self, trial_id: str) -> bool:
        """Whether a trial has a committed checkpoint."""
        ...

    def write(self, trial_id: str, write: Callable[[Path], None], label: str = "") -> None:
        """Store the folder that `write` fills: pending under a label, else committed."""
        ...

    def promote(self, trial_id: str, label: str) -> None:
        """Commit a pending checkpoint; it replaces the old one."""
        ...

    def local_folder(self, trial_id: str, label: str = "") -> AbstractContextManager[Path]:
        """A local folder with a checkpoint, downloaded for the block if necessary."""
        ...

    def read_file(self, trial_id: str, label: str, name: str) -> bytes | None:
        """Read one file of a checkpoint; None if it is missing."""
        ...

    def delete(self, trial_id: str) -> None:
        """Delete a trial's committed and pending checkpoints."""
        ...

    def drop(self, trial_id: str, label: str) -> None:
        """Delete a pending checkpoint."""
        ...

    def sweep(self) -> None:
        """Delete what killed writers left."""
        ...


def checkpoints_of(files: StudyFiles, folder: str = FOLDER) -> Checkpoints:
    """The checkpoints or states of a study, on a disk or an object store."""
    if isinstance(files.storage, DiskStorage):
        return DiskCheckpoints(files.storage.root / folder)
    # Imported here because obstore takes time to load and few studies need it.
    from tune_sentcl.store.object_checkpoints import ObjectCheckpoints

    return ObjectCheckpoints(files, folder)


def newest_label(found: Checkpoints, trial_id: str) -> str | None:
    """The highest label of a trial's checkpoints, empty if committed; None without any."""
    labels = [label for name, label in found.pending() if name == trial_id]
    if found.has(trial_id):
        labels.append("")
    return max(labels, key=label_key, default=None)


@dataclass(frozen=True)
class DiskCheckpoints:
    """Checkpoints on a disk: a complete folder is renamed to its final name."""

    folder: Path

    def complete(self) -> set[str]:
        """See `Checkpoints`."""
        return {
            name
            for name, label in self._trials_and_labels()
            if not label and _is_complete(self._path(name))
        }

    def pending(self) -> list[tuple[str, str]]:
        """See `Checkpoints`."""
        return [named for named in self._trials_and_labels() if named[1]]

    def trials(self) -> set[str]:
        """See `Checkpoints`."""
        return {
            name
            for name, label in self._trials_and_labels()
            if label or _is_complete(self._path(name))
        }

    def has(self, trial_id: str) -> bool:
        """See `Checkpoints`."""
        return _is_complete(self._path(trial_id))

    def write(self, trial_id: str, write: Callable[[Path], None], label: str = "") -> None:
        """See `Checkpoints`."""
        target = self._path(trial_id, label)
        make_folder(target.parent)
        scratch = temporary(target)
        scratch.mkdir()
        try:
            write(scratch)
            sync_tree(scratch)
            _move_into_place(scratch, target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def promote(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        source = self._path(trial_id, label)
        with storage_errors(str(source)):
            if source.is_dir():
                _move_into_place(source, self._path(trial_id))

    @contextmanager
    def local_folder(self, trial_id: str, label: str = "") -> Iterator[Path]:
        """See `Checkpoints`."""
        path = self._path(trial_id, label)
        with storage_errors(str(path)):
            path.stat()
        yield path

    def read_file(self, trial_id: str, label: str, name: str) -> bytes | None:
        """See `Checkpoints`."""
        path = self._path(trial_id, label) / name
        with storage_errors(str(path)):
            return path.read_bytes() if path.is_file() else None

    def delete(self, trial_id: str) -> None:
        """See `Checkpoints`."""
        with storage_errors(str(self._path(trial_id))):
            delete_folder(self._path(trial_id))
        for name, label in self.pending():
            if name == trial_id:
                self.drop(name, label)

    def drop(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        path = self._path(trial_id, label)
        with storage_errors(str(path)):
            delete_folder(path)

    def sweep(self) -> None:
        """See `Checkpoints`."""
        folder = self.folder
        with storage_errors(str(folder)):
            leftovers = (
                [p for p in folder.iterdir() if p.name[0] == "."] if folder.is_dir() else []
            )
            for path in leftovers:
                if is_abandoned(path):
                    _clear_leftover(path)

    def _trials_and_labels(self) -> list[tuple[str, str]]:
        with storage_errors(str(self.folder)):
            names = sorted(p.name for p in self.folder.iterdir()) if self.folder.is_dir() else []
        return [named for named in map(parse_stem, names) if named]

    def _path(self, trial_id: str, label: str = "") -> Path:
        return self.folder / trial_stem(trial_id, label)


def _is_complete(path: Path) -> bool:
    """Whether a folder is a checkpoint, and not a copy of an object store's versions."""
    return path.is_dir() and not (path / CURRENT).exists()


def _move_into_place(source: Path, target: Path) -> None:
    # After a crash between the two renames, `sweep` finds this name and restores the old folder.
    replaced = temporary(target.with_name(f"{target.name}.replaced"))
    with suppress(FileNotFoundError):  # it never existed, or another process deleted it
        target.rename(replaced)
    try:
        source.rename(target)
    except OSError:
        if os.path.lexists(replaced):
            replaced.rename(target)
        raise
    sync_folder(target.parent)
    if os.path.lexists(replaced):
        delete_tree(replaced)


def _clear_leftover(path: Path) -> None:
    replaced = _REPLACED.fullmatch(path.name)
    target = path.with_name(replaced["trial"]) if replaced else path
    if not target.exists():
        path.rename(target)
    elif path.is_dir():
        delete_tree(path)
    else:
        path.unlink(missing_ok=True)
