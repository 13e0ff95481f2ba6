"""Folders that workers write: weights of finished trials, states of running ones.

A folder's name says the trial and the attempt: `checkpoints/ID.EPOCH-TRY`, and for the n-th state
of an attempt `states/ID.EPOCH-TRY.N`. A folder is whole if it has the file `complete`, which is
written last and deleted first. Weights are a trial's own if its row names their attempt; of the
states the newest counts.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import obstore

from tune_sentcl.store.disk import make_folder, sync_folder, sync_tree
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.objects import os_errors, storage_errors

WEIGHTS = "checkpoints"
"""The study's folder of weights."""

STATES = "states"
"""The study's folder of states."""

_COMPLETE = "complete"
_TRIAL_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"([A-Za-z0-9_-]+)\.([0-9]+)-([0-9]+)(?:\.([0-9]+))?")
_LABEL = re.compile(r"([0-9]+)-([0-9]+)")


def label_key(label: str) -> tuple[int, int]:
    """The epoch and the try of an attempt's label.

    Raises:
        ValueError: The label could lead to another folder.
    """
    match = _LABEL.fullmatch(label)
    if match is None:
        raise ValueError(f"label {label!r} must be EPOCH-TRY")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, order=True)
class TrialFolder:
    """The name of a folder of one attempt; those of a trial sort from the oldest to the newest.

    Attributes:
        trial_id: The trial.
        epoch: The number of the driver that handed the attempt out.
        attempt: The number of the attempt among this driver's.
        number: The number of a state, from 1; 0 for weights.
    """

    trial_id: str
    epoch: int
    attempt: int
    number: int = 0

    @classmethod
    def of(cls, trial_id: str, label: str, number: int = 0) -> Self:
        """Name the folder of an attempt.

        Raises:
            ValueError: The id or the label could lead to another folder.
        """
        if not _TRIAL_ID.fullmatch(trial_id):
            raise ValueError(f"trial_id {trial_id!r} must have letters, digits, - and _ only")
        return cls(trial_id, *label_key(label), number)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a folder's name; None for other names."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(match[1], *(int(part or 0) for part in match.groups()[1:]))

    @property
    def label(self) -> str:
        """The label of the attempt."""
        return f"{self.epoch}-{self.attempt}"

    def __str__(self) -> str:
        end = f".{self.number}" if self.number else ""
        return f"{self.trial_id}.{self.label}{end}"


@dataclass(frozen=True)
class TrialFolders:
    """The weights or the states of a study.

    Attributes:
        files: The study.
        kind: `WEIGHTS` or `STATES`.
    """

    files: StudyFiles
    kind: str

    def found(self, trial_id: str | None = None) -> list[TrialFolder]:
        """All folders, or those of a trial, sorted."""
        parsed = map(TrialFolder.parse, self.files.names(self.kind))
        return sorted(one for one in parsed if one and trial_id in (None, one.trial_id))

    def newest_complete(self, trial_id: str) -> TrialFolder | None:
        """The newest complete folder of a trial."""
        return next(filter(self.is_complete, reversed(self.found(trial_id))), None)

    def write(self, folder: TrialFolder, fill: Callable[[Path], None]) -> None:
        """Store the local folder that `fill` fills; OSError if the storage refuses."""
        path = self._path(folder)
        if path is None:
            with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
                fill(Path(scratch))
                self._upload(Path(scratch), folder)
            return
        self.delete(folder)  # a link, or what the same attempt has left
        make_folder(path)
        fill(path)
        sync_tree(path)
        (path / _COMPLETE).touch()
        sync_folder(path)

    @contextmanager
    def local(self, folder: TrialFolder) -> Iterator[Path]:
        """The local folder with its files, downloaded for the block if necessary."""
        path = self._path(folder)
        if path is not None:
            with storage_errors(str(path)):
                path.stat()
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            with storage_errors(self.files.display_path(self._name(folder))):
                self._download(folder, Path(scratch))
            yield Path(scratch)

    def read_file(self, folder: TrialFolder, name: str) -> bytes | None:
        """Read one file; None if it is missing."""
        return self.files.read_bytes(f"{self._name(folder)}/{name}")

    def delete(self, folder: TrialFolder) -> None:
        """Delete a folder if it exists; of a link, the link alone."""
        path = self._path(folder)
        if path is None:
            self.files.delete([f"{self._name(folder)}/{_COMPLETE}"])
            self.files.delete(self.files.below(self._name(folder)))
            return
        with storage_errors(str(path)), suppress(FileNotFoundError):
            if path.is_symlink():
                path.unlink()
            else:
                (path / _COMPLETE).unlink(missing_ok=True)
                shutil.rmtree(path)

    def is_complete(self, folder: TrialFolder) -> bool:
        """Whether a folder is neither half written nor half deleted."""
        return self.files.exists(f"{self._name(folder)}/{_COMPLETE}")

    def _upload(self, source: Path, folder: TrialFolder) -> None:
        name = self._name(folder)
        with os_errors():
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    place = f"{name}/{path.relative_to(source).as_posix()}"
                    obstore.put(self.files.client, place, path)
            obstore.put(self.files.client, f"{name}/{_COMPLETE}", b"")

    def _download(self, folder: TrialFolder, target: Path) -> None:
        names = self.files.below(self._name(folder))
        if not names:
            raise FileNotFoundError(os.strerror(2))
        with os_errors():
            for found in names:
                path = target / found.removeprefix(f"{self._name(folder)}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    for chunk in obstore.get(self.files.client, found).stream():
                        file.write(chunk)

    def _name(self, folder: TrialFolder) -> str:
        return f"{self.kind}/{folder}"

    def _path(self, folder: TrialFolder) -> Path | None:
        return None if self.files.folder is None else self.files.folder / self._name(folder)
