"""What trials leave as folders, weights and states: each there whole or not at all."""

import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow.fs as pafs

from tune_sentcl.store.disk import (
    abandoned,
    delete_folder,
    make_folder,
    sync_folder,
    sync_tree,
    temporary,
)
from tune_sentcl.store.faults import disk_faults
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.segments import checked

FOLDER = "checkpoints"
"""Where the weights of finished trials lie in a study."""

STATES = "states"
"""Where the states of running trials lie."""

_CURRENT = "current"
_REPLACED = re.compile(r"\.(?P<trial>[A-Za-z0-9_-]+)\.replaced\..*")


class Checkpoints(Protocol):
    """What can be done with the checkpoints of a study."""

    def whole(self) -> set[str]:
        """The trials whose weights are there, whole."""
        ...

    def has(self, trial_id: str) -> bool:
        """Whether a trial's are there, whole."""
        ...

    def write(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Let `write` fill a local folder; then it takes the place of the trial's old one."""
        ...

    def brought(self, trial_id: str) -> AbstractContextManager[Path]:
        """A local folder that holds a trial's weights."""
        ...

    def delete(self, trial_id: str) -> None:
        """Delete a trial's weights."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give the weights that schema 1 kept under a trial's old id the new one."""
        ...

    def sweep(self) -> None:
        """Clear away what killed writers left."""
        ...


def checkpoints_of(files: StudyFiles, folder: str = FOLDER) -> Checkpoints:
    """The checkpoints of a study, or its trials' states, wherever it lies."""
    kind = DiskCheckpoints if files.local else StoredCheckpoints
    return kind(files, folder)


@dataclass(frozen=True)
class DiskCheckpoints:
    """Checkpoints on a disk, where a folder gets its name when it is whole."""

    files: StudyFiles
    folder: str = FOLDER

    def whole(self) -> set[str]:
        """See `Checkpoints`."""
        return {name for name in self.files.names(self.folder) if not name.startswith(".")}

    def has(self, trial_id: str) -> bool:
        """See `Checkpoints`."""
        return self._path(trial_id).is_dir()

    def write(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """See `Checkpoints`."""
        target = self._path(trial_id)
        make_folder(target.parent)
        scratch = temporary(target)
        scratch.mkdir()
        try:
            write(scratch)
            sync_tree(scratch)
            self._put(scratch, target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def _put(self, scratch: Path, target: Path) -> None:
        # Under this name `sweep` brings the old folder back if no new one follows.
        replaced = temporary(target.with_name(f"{target.name}.replaced"))
        if target.exists():
            target.rename(replaced)
        try:
            scratch.rename(target)
        except OSError:
            if replaced.exists():
                replaced.rename(target)
            raise
        sync_folder(target.parent)
        if replaced.exists():
            shutil.rmtree(replaced)

    @contextmanager
    def brought(self, trial_id: str) -> Iterator[Path]:
        """See `Checkpoints`."""
        path = self._path(trial_id)
        with disk_faults(str(path)):
            path.stat()
        yield path

    def delete(self, trial_id: str) -> None:
        """See `Checkpoints`."""
        with disk_faults(str(self._path(trial_id))):
            delete_folder(self._path(trial_id))

    def rename(self, old: str, new: str) -> None:
        """See `Checkpoints`."""
        source, target = self._path(old), self._path(new)
        with disk_faults(str(source)):
            if source.exists() and not target.exists():
                source.rename(target)

    def sweep(self) -> None:
        """See `Checkpoints`."""
        folder = Path(self.files.path(self.folder))
        with disk_faults(str(folder)):
            left = [p for p in folder.iterdir() if p.name[0] == "."] if folder.is_dir() else []
            for path in left:
                if abandoned(path):
                    _clear(path)

    def _path(self, trial_id: str) -> Path:
        return Path(self.files.path(f"{self.folder}/{checked(trial_id)}"))


def _clear(path: Path) -> None:
    replaced = _REPLACED.fullmatch(path.name)
    target = path.with_name(replaced["trial"]) if replaced else path
    if not target.exists():
        path.rename(target)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class StoredCheckpoints:
    """Checkpoints on an object store: `ID/VERSION/...`, and `ID/current`, which names the version.

    What is current is one small object, so that a new version counts at once and whole.
    """

    files: StudyFiles
    folder: str = FOLDER

    def whole(self) -> set[str]:
        """See `Checkpoints`."""
        names = self.files.names(self.folder)
        paths = [self._path(name, _CURRENT) for name in names]
        with disk_faults(self.files.shown(self.folder)):
            infos = self.files.filesystem.get_file_info(paths)
        pairs = zip(names, infos, strict=True)
        return {name for name, info in pairs if info.type == pafs.FileType.File}

    def has(self, trial_id: str) -> bool:
        """See `Checkpoints`."""
        return self.files.exists(f"{self.folder}/{checked(trial_id)}/{_CURRENT}")

    def write(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """See `Checkpoints`."""
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            write(Path(scratch))
            self._put(trial_id, scratch, pafs.LocalFileSystem())

    def _put(self, trial_id: str, source: str, filesystem: pafs.FileSystem) -> None:
        version = secrets.token_hex(4)
        there = self.files.filesystem
        with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
            there.create_dir(self._path(trial_id, version), recursive=True)
            pafs.copy_files(
                source,
                self._path(trial_id, version),
                source_filesystem=filesystem,
                destination_filesystem=there,
            )
            self.files.write_bytes(f"{self.folder}/{trial_id}/{_CURRENT}", version.encode())
            for info in there.get_file_info(pafs.FileSelector(self._path(trial_id))):
                if info.base_name not in (version, _CURRENT):
                    self._delete(info)

    def _delete(self, info: pafs.FileInfo) -> None:
        if info.type == pafs.FileType.Directory:
            self.files.filesystem.delete_dir(info.path)
        else:
            self.files.filesystem.delete_file(info.path)

    @contextmanager
    def brought(self, trial_id: str) -> Iterator[Path]:
        """See `Checkpoints`."""
        there = self.files.filesystem
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
                with there.open_input_file(self._path(trial_id, _CURRENT)) as file:
                    version = file.read().decode()
                pafs.copy_files(
                    self._path(trial_id, version),
                    scratch,
                    source_filesystem=there,
                    destination_filesystem=pafs.LocalFileSystem(),
                )
            yield Path(scratch)

    def delete(self, trial_id: str) -> None:
        """See `Checkpoints`."""
        self.files.delete(f"{self.folder}/{checked(trial_id)}/{_CURRENT}")
        with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
            self.files.filesystem.delete_dir(self._path(trial_id))

    def rename(self, old: str, new: str) -> None:
        """See `Checkpoints`."""
        if not self.has(new):
            self._put(new, self._path(old), self.files.filesystem)
        if old != new and old in self.files.names(self.folder):
            self.delete(old)

    def sweep(self) -> None:
        """Nothing: what is no version that counts is cleared when the next one is written."""

    def _path(self, trial_id: str, *parts: str) -> str:
        return self.files.path("/".join((self.folder, checked(trial_id), *parts)))
