"""Checkpoints on an object store: objects `ID/VERSION/...` and pointers to a version.

The object `ID/current` holds the name of a trial's committed version, and `ID/LABEL.whole` that
of a pending version. Writing a pointer, one small object, makes all files of a version valid at
once.
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
from tune_sentcl.store.objects import ObjectStorage
from tune_sentcl.store.segments import CURRENT, is_trial, parse_stem, validated_trial_id
from tune_sentcl.store.storage import storage_errors

_POINTER_SUFFIX = ".whole"
_VERSION = re.compile(r"[0-9a-f]{8}")  # `sweep` deletes only such names


@dataclass(frozen=True)
class ObjectCheckpoints:
    """See `checkpoints.Checkpoints`."""

    files: StudyFiles
    folder: str

    def complete(self) -> set[str]:
        """See `Checkpoints`."""
        return _complete_trials(self._object_names())

    def pending(self) -> list[tuple[str, str]]:
        """See `Checkpoints`."""
        return _pending(self._object_names())

    def trials(self) -> set[str]:
        """See `Checkpoints`."""
        found = self._object_names()
        return _complete_trials(found) | {trial_id for trial_id, _ in _pending(found)}

    def has(self, trial_id: str) -> bool:
        """See `Checkpoints`."""
        return self.files.exists(self._name(trial_id, CURRENT))

    def write(self, trial_id: str, write: Callable[[Path], None], label: str = "") -> None:
        """See `Checkpoints`."""
        version = secrets.token_hex(4)
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            write(Path(scratch))
            with storage_errors(self.files.display_path(f"{self.folder}/{trial_id}")):
                self._objects.upload(Path(scratch), self._name(trial_id, version))
        before = self._version(trial_id, label)
        self.files.write_bytes(self._pointer(trial_id, label), version.encode())
        self._delete_version(trial_id, before)

    def promote(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        version = self._version(trial_id, label)
        if version is not None:
            before = self._version(trial_id)
            self.files.write_bytes(self._pointer(trial_id), version.encode())
            self.files.delete(self._pointer(trial_id, label))
            if before != version:
                self._delete_version(trial_id, before)

    @contextmanager
    def local_folder(self, trial_id: str, label: str = "") -> Iterator[Path]:
        """See `Checkpoints`."""
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            with storage_errors(self.files.display_path(f"{self.folder}/{trial_id}")):
                version = self._version(trial_id, label)
                if version is None:
                    raise FileNotFoundError(errno.ENOENT, "no checkpoint")
                self._objects.download(self._name(trial_id, version), Path(scratch))
            yield Path(scratch)

    def read_file(self, trial_id: str, label: str, name: str) -> bytes | None:
        """See `Checkpoints`."""
        version = self._version(trial_id, label)
        return self.files.read_bytes(self._name(trial_id, version, name)) if version else None

    def delete(self, trial_id: str) -> None:
        """See `Checkpoints`."""
        self.files.delete(self._pointer(trial_id))
        with storage_errors(self.files.display_path(f"{self.folder}/{trial_id}")):
            self._objects.delete_folder(self._name(trial_id))

    def drop(self, trial_id: str, label: str) -> None:
        """See `Checkpoints`."""
        version = self._version(trial_id, label)
        if version is not None:
            self.files.delete(self._pointer(trial_id, label))
            self._delete_version(trial_id, version)

    def sweep(self) -> None:
        """See `Checkpoints`."""
        found = self._object_names()
        there = {(t, name) for t, name, *rest in found if rest and _VERSION.fullmatch(name)}
        named = {(trial_id, self._version(trial_id, label)) for trial_id, label in _pending(found)}
        named |= {(trial_id, self._version(trial_id)) for trial_id, _ in there}
        for trial_id, version in there - named:
            self._delete_version(trial_id, version)

    def _object_names(self) -> list[list[str]]:
        """The names of all objects, relative to the folder and split at `/`."""
        with storage_errors(self.files.display_path(self.folder)):
            names = self._objects.below(self.folder)
        parts = [name.removeprefix(f"{self.folder}/").split("/") for name in names]
        return [found for found in parts if len(found) > 1 and is_trial(found[0])]

    def _version(self, trial_id: str, label: str = "") -> str | None:
        pointer = self._pointer(trial_id, label)
        data = self.files.read_bytes(pointer)
        version = "" if data is None else data.decode(errors="replace")
        if data is not None and not _VERSION.fullmatch(version):
            rule, move = "must name one of the versions beside it", "Delete it."
            raise StudyError(Fault(self.files.display_path(pointer), "", "", rule, move))
        return version or None

    def _delete_version(self, trial_id: str, version: str | None) -> None:
        if version is not None:
            with storage_errors(self.files.display_path(f"{self.folder}/{trial_id}")):
                self._objects.delete_folder(self._name(trial_id, version))

    def _pointer(self, trial_id: str, label: str = "") -> str:
        return self._name(trial_id, f"{label}{_POINTER_SUFFIX}" if label else CURRENT)

    def _name(self, trial_id: str, *parts: str) -> str:
        return "/".join((self.folder, validated_trial_id(trial_id), *parts))

    @property
    def _objects(self) -> ObjectStorage:
        if not isinstance(self.files.storage, ObjectStorage):
            raise TypeError(f"{self.files.where} must be an object store")
        return self.files.storage


def _complete_trials(names: Iterable[Sequence[str]]) -> set[str]:
    """The trials with a committed version among split object names."""
    return {trial_id for trial_id, name, *rest in names if name == CURRENT and not rest}


def _pending(names: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """The trials and labels of pending versions among split object names."""
    marks = [
        (t, name.removesuffix(_POINTER_SUFFIX))
        for t, name, *_ in names
        if name.endswith(_POINTER_SUFFIX)
    ]
    return [mark for mark in marks if mark == parse_stem(".".join(mark))]
