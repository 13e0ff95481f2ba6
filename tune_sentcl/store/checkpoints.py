"""What trials leave as folders, weights and states: each there whole or not at all.

What an attempt writes waits under the attempt's label until the driver lets it be the trial's.
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
    Disk,
    abandoned,
    delete_folder,
    delete_tree,
    make_folder,
    sync_folder,
    sync_tree,
    temporary,
)
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.segments import CURRENT, in_order, own_stem, split
from tune_sentcl.store.storage import disk_faults

FOLDER = "checkpoints"
"""Where the weights of finished trials lie in a study."""

STATES = "states"
"""Where the states of running trials lie."""

_REPLACED = re.compile(r"\.(?P<trial>[A-Za-z0-9_.-]+)\.replaced\..*")


class Checkpoints(Protocol):
    """What can be done with the checkpoints of a study."""

    def whole(self) -> set[str]:
        """The trials whose weights are there, whole."""
        ...

    def waiting(self) -> list[tuple[str, str]]:
        """The trials and labels of what attempts have left, whole."""
        ...

    def trials(self) -> set[str]:
        """The trials of which anything is there, whole, or waits; one listing."""
        ...

    def has(self, trial_id: str) -> bool:
        """Whether a trial's are there, whole."""
        ...

    def write(self, trial_id: str, write: Callable[[Path], None], label: str = "") -> None:
        """Let `write` fill a local folder; it then waits, or without a label is the trial's."""
        ...

    def promote(self, trial_id: str, label: str) -> None:
        """Let what waits take the place of the trial's old one."""
        ...

    def brought(self, trial_id: str, label: str = "") -> AbstractContextManager[Path]:
        """A local folder that holds a trial's weights, or what waits under a label."""
        ...

    def part(self, trial_id: str, label: str, name: str) -> bytes | None:
        """One file of what `brought` would bring; None where there is none."""
        ...

    def delete(self, trial_id: str) -> None:
        """Delete a trial's weights, and what waits to be."""
        ...

    def drop(self, trial_id: str, label: str) -> None:
        """Delete what waits under a label."""
        ...

    def sweep(self) -> None:
        """Clear away what killed writers left."""
        ...


def checkpoints_of(files: StudyFiles, folder: str = FOLDER) -> Checkpoints:
    """The checkpoints of a study, or its trials' states, wherever it lies."""
    if isinstance(files.storage, Disk):
        return DiskCheckpoints(files.storage.root / folder)
    # Only who has a study there pays for the library.
    from tune_sentcl.store.object_checkpoints import StoredCheckpoints

    return StoredCheckpoints(files, folder)


def newest(found: Checkpoints, trial_id: str) -> str | None:
    """The label of the last attempt that has left something whole of a trial; None: none has."""
    labels = [label for name, label in found.waiting() if name == trial_id]
    if found.has(trial_id):
        labels.append("")
    return max(labels, key=in_order, default=None)


@dataclass(frozen=True)
class DiskCheckpoints:
    """Checkpoints on a disk, where a folder gets its name when it is whole."""

    folder: Path

    def whole(self) -> set[str]:
        """See `Checkpoints`."""
        return {name for name, label in self._named() if not label and _whole(self._path(name))}

    def waiting(self) -> list[tuple[str, str]]:
        """See `Checkpoints`."""
        return [named for named in self._named() if named[1]]

    def trials(self) -> set[str]:
        """See `Checkpoints`."""
        return {name for name, label in self._named() if label or _whole(self._path(name))}

    def has(self, trial_id: str) -> bool:
        """See `Checkpoints`."""
        return _whole(self._path(trial_id))

    def write(self, trial_id: str, write: Callable[[Path], None], label: str = "") -> None:
        """See `Checkpoints`."""
        target = self._path(trial_id, label)
        make_folder(target.parent)
        scratch = temporary(target)
        scratch.mkdir()
        try:
            write(scratch)
            sync_tree(scratch)
            _put(scratch, target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def promote(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        source = self._path(trial_id, label)
        with disk_faults(str(source)):
            if source.is_dir():
                _put(source, self._path(trial_id))

    @contextmanager
    def brought(self, trial_id: str, label: str = "") -> Iterator[Path]:
        """See `Checkpoints`."""
        path = self._path(trial_id, label)
        with disk_faults(str(path)):
            path.stat()
        yield path

    def part(self, trial_id: str, label: str, name: str) -> bytes | None:
        """See `Checkpoints`."""
        path = self._path(trial_id, label) / name
        with disk_faults(str(path)):
            return path.read_bytes() if path.is_file() else None

    def delete(self, trial_id: str) -> None:
        """See `Checkpoints`."""
        with disk_faults(str(self._path(trial_id))):
            delete_folder(self._path(trial_id))
        for name, label in self.waiting():
            if name == trial_id:
                self.drop(name, label)

    def drop(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        path = self._path(trial_id, label)
        with disk_faults(str(path)):
            delete_folder(path)

    def sweep(self) -> None:
        """See `Checkpoints`."""
        folder = self.folder
        with disk_faults(str(folder)):
            left = [p for p in folder.iterdir() if p.name[0] == "."] if folder.is_dir() else []
            for path in left:
                if abandoned(path):
                    _clear(path)

    def _named(self) -> list[tuple[str, str]]:
        with disk_faults(str(self.folder)):
            names = sorted(p.name for p in self.folder.iterdir()) if self.folder.is_dir() else []
        return [named for named in map(split, names) if named]

    def _path(self, trial_id: str, label: str = "") -> Path:
        return self.folder / own_stem(trial_id, label)


def _whole(path: Path) -> bool:
    """Whether a folder holds what it is to hold, and not an object store's versions of it."""
    return path.is_dir() and not (path / CURRENT).exists()


def _put(source: Path, target: Path) -> None:
    # Under this name `sweep` brings the old folder back if no new one follows.
    replaced = temporary(target.with_name(f"{target.name}.replaced"))
    with suppress(FileNotFoundError):  # there is none, or its deletion was faster
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


def _clear(path: Path) -> None:
    replaced = _REPLACED.fullmatch(path.name)
    target = path.with_name(replaced["trial"]) if replaced else path
    if not target.exists():
        path.rename(target)
    elif path.is_dir():
        delete_tree(path)
    else:
        path.unlink(missing_ok=True)
