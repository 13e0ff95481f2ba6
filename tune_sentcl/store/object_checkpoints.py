"""Checkpoints on an object store: objects `ID/VERSION/...` and pointers to a version.

The object `ID/current` holds the name of a trial's committed version, and `ID/LABEL.whole` that of
a pending version. Writing a pointer, one small object, makes all files of a version valid at once.
"""

import errno
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.objects import Objects
from tune_sentcl.store.segments import CURRENT, checked, is_trial, split
from tune_sentcl.store.storage import disk_faults

_WHOLE = ".whole"
_VERSION = re.compile(r"[0-9a-f]{8}")  # `sweep` deletes only such names


@dataclass(frozen=True)
class StoredCheckpoints:
    """See `checkpoints.Checkpoints`."""

    files: StudyFiles
    folder: str

    def whole(self) -> set[str]:
        """See `Checkpoints`."""
        return _whole(self._all())

    def waiting(self) -> list[tuple[str, str]]:
        """See `Checkpoints`."""
        return _waiting(self._all())

    def trials(self) -> set[str]:
        """See `Checkpoints`."""
        found = self._all()
        return _whole(found) | {trial_id for trial_id, _ in _waiting(found)}

    def has(self, trial_id: str) -> bool:
        """See `Checkpoints`."""
        return self.files.exists(self._name(trial_id, CURRENT))

    def write(self, trial_id: str, write: Callable[[Path], None], label: str = "") -> None:
        """See `Checkpoints`."""
        version = secrets.token_hex(4)
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            write(Path(scratch))
            with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
                self._objects.upload(Path(scratch), self._name(trial_id, version))
        before = self._version(trial_id, label)
        self.files.write_bytes(self._pointer(trial_id, label), version.encode())
        self._forget(trial_id, before)

    def promote(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        version = self._version(trial_id, label)
        if version is not None:
            before = self._version(trial_id)
            self.files.write_bytes(self._pointer(trial_id), version.encode())
            self.files.delete(self._pointer(trial_id, label))
            if before != version:
                self._forget(trial_id, before)

    @contextmanager
    def brought(self, trial_id: str, label: str = "") -> Iterator[Path]:
        """See `Checkpoints`."""
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
                version = self._version(trial_id, label)
                if version is None:
                    raise FileNotFoundError(errno.ENOENT, "no checkpoint")
                self._objects.download(self._name(trial_id, version), Path(scratch))
            yield Path(scratch)

    def part(self, trial_id: str, label: str, name: str) -> bytes | None:
        """See `Checkpoints`."""
        version = self._version(trial_id, label)
        return self.files.read_bytes(self._name(trial_id, version, name)) if version else None

    def delete(self, trial_id: str) -> None:
        """See `Checkpoints`."""
        self.files.delete(self._pointer(trial_id))
        with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
            self._objects.delete_folder(self._name(trial_id))

    def drop(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        version = self._version(trial_id, label)
        if version is not None:
            self.files.delete(self._pointer(trial_id, label))
            self._forget(trial_id, version)

    def sweep(self) -> None:
        """See `Checkpoints`."""
        found = self._all()
        there = {(t, name) for t, name, *rest in found if rest and _VERSION.fullmatch(name)}
        named = {(trial_id, self._version(trial_id, label)) for trial_id, label in _waiting(found)}
        named |= {(trial_id, self._version(trial_id)) for trial_id, _ in there}
        for trial_id, version in there - named:
            self._forget(trial_id, version)

    def _all(self) -> list[list[str]]:
        """The names of all objects, relative to the folder and split at `/`."""
        with disk_faults(self.files.shown(self.folder)):
            names = self._objects.below(self.folder)
        parts = [name.removeprefix(f"{self.folder}/").split("/") for name in names]
        return [found for found in parts if len(found) > 1 and is_trial(found[0])]

    def _version(self, trial_id: str, label: str = "") -> str | None:
        pointer = self._pointer(trial_id, label)
        data = self.files.read_bytes(pointer)
        version = "" if data is None else data.decode(errors="replace")
        if data is not None and not _VERSION.fullmatch(version):
            rule, move = "must name one of the versions beside it", "Delete it."
            raise StudyError(Fault(self.files.shown(pointer), "", "", rule, move))
        return version or None

    def _forget(self, trial_id: str, version: str | None) -> None:
        if version is not None:
            with disk_faults(self.files.shown(f"{self.folder}/{trial_id}")):
                self._objects.delete_folder(self._name(trial_id, version))

    def _pointer(self, trial_id: str, label: str = "") -> str:
        return self._name(trial_id, f"{label}{_WHOLE}" if label else CURRENT)

    def _name(self, trial_id: str, *parts: str) -> str:
        return "/".join((self.folder, checked(trial_id), *parts))

    @property
    def _objects(self) -> Objects:
        if not isinstance(self.files.storage, Objects):
            raise TypeError(f"{self.files.where} must be an object store")
        return self.files.storage


def _whole(names: Iterable[Sequence[str]]) -> set[str]:
    """The trials with a committed version among split object names."""
    return {trial_id for trial_id, name, *rest in names if name == CURRENT and not rest}


def _waiting(names: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """The trials and labels of pending versions among split object names."""
    marks = [(t, name.removesuffix(_WHOLE)) for t, name, *_ in names if name.endswith(_WHOLE)]
    return [mark for mark in marks if mark == split(".".join(mark))]
