"""Folders that workers write: weights of finished trials, states of running ones.

A folder's name states the trial and the attempt: `checkpoints/ID.EPOCH-TRY`, and for the n-th
state of an attempt `states/ID.EPOCH-TRY.N`. A folder is complete if it has the file `complete`,
which is written last and deleted first. Only weights of the attempt that the trial's row names
count, and only the newest state.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import obstore

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.disk import make_folder, sync_folder, sync_tree
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.objects import storage_errors

WEIGHTS = "checkpoints"
"""The study's folder of weights."""

STATES = "states"
"""The study's folder of states."""

ITEMS = "items"
"""The study's folder of the scores of single items, for trials without training."""

_COMPLETE = "complete"
_NAME = re.compile(r"([A-Za-z0-9_-]+)\.([0-9]+)-([0-9]+)(?:\.([0-9]+))?")


@dataclass(frozen=True, order=True)
class TrialFolder:
    """The name of a folder of one attempt; a trial's folders sort from the oldest to the newest.

    Attributes:
        trial_id: The trial.
        epoch: The number of the driver that started the attempt.
        attempt: The number of the attempt among those of this driver.
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
        folder = cls.parse(f"{trial_id}.{label}")
        if folder is None or folder.number:
            rule = "must have letters, digits, - and _ only, and its label must be EPOCH-TRY"
            raise ValueError(f"trial_id {trial_id!r} {rule}, not {label!r}")
        return replace(folder, number=number)

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
    """All folders of one kind in a study.

    Attributes:
        files: The study.
        kind: `WEIGHTS`, `STATES` or `ITEMS`.
    """

    files: StudyFiles
    kind: str

    def existing(self, trial_id: str | None = None) -> list[TrialFolder]:
        """All folders, or those of a trial, sorted."""
        folders = filter(None, map(TrialFolder.parse, self.files.names(self.kind)))
        return sorted(folder for folder in folders if trial_id in (None, folder.trial_id))

    def newest_complete(self, trial_id: str) -> TrialFolder | None:
        """The newest complete folder of a trial."""
        return next(filter(self.is_complete, reversed(self.existing(trial_id))), None)

    def write(self, folder: TrialFolder, fill: Callable[[Path], None]) -> None:
        """Store a folder that `fill` fills; StudyError if the storage cannot be written."""
        path = self._path(folder)
        with storage_errors(self.files.display_path(self._name(folder))):
            if path is None:
                with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
                    fill(Path(scratch))
                    self._upload(Path(scratch), folder)
                return
            # The name may be taken by a folder of an earlier attempt, or by a link.
            self.delete(folder)
            make_folder(path)
            fill(path)
            sync_tree(path)
            (path / _COMPLETE).touch()
            sync_folder(path)

    @contextmanager
    def local(self, folder: TrialFolder) -> Iterator[Path]:
        """Context manager: the local folder with its files, downloaded if necessary."""
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
        """Delete a folder if it exists; a link is deleted without its target."""
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
        """Whether a folder is neither partly written nor partly deleted."""
        return self.files.exists(f"{self._name(folder)}/{_COMPLETE}")

    def _upload(self, source: Path, folder: TrialFolder) -> None:
        name = self._name(folder)
        for path in sorted(source.rglob("*")):
            if path.is_file():
                place = f"{name}/{path.relative_to(source).as_posix()}"
                obstore.put(self.files.client, place, path)
        obstore.put(self.files.client, f"{name}/{_COMPLETE}", b"")

    def _download(self, folder: TrialFolder, target: Path) -> None:
        names = self.files.below(self._name(folder))
        if not names:
            raise FileNotFoundError(os.strerror(2))
        for name in names:
            path = target / name.removeprefix(f"{self._name(folder)}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                for chunk in obstore.get(self.files.client, name).stream():
                    file.write(chunk)

    def _name(self, folder: TrialFolder) -> str:
        return f"{self.kind}/{folder}"

    def _path(self, folder: TrialFolder) -> Path | None:
        return None if self.files.folder is None else self.files.folder / self._name(folder)


class TrialFiles:
    """A worker's access to a study, without a lock; can be pickled.

    Every method raises StudyError if this machine cannot see the study, or a file cannot be read
    or written.
    """

    def __init__(self, path: str | Path, attempt: str = "1-1", before: str = "") -> None:
        """Keep the location of a study, without reading or writing.

        Args:
            path: The study's folder or URL.
            attempt: The label of this attempt.
            before: The label that the trial's row names now; empty without a row.

        Raises:
            StudyError: The URL has an unknown scheme or credentials.
        """
        self._files = StudyFiles.at(path)
        self._attempt, self._before = attempt, before
        self._num_states = 0

    def write_checkpoint(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write the trial's weights; they replace older weights when the trial's row is committed.

        Args:
            trial_id: The trial.
            write: Writes the weights into an empty local folder.
        """
        self._write(WEIGHTS, TrialFolder.of(trial_id, self._attempt), write)

    def write_items(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write the scores of single items of a trial that saves no weights."""
        self._write(ITEMS, TrialFolder.of(trial_id, self._attempt), write)

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """Context manager: the local folder of the trial's weights, downloaded if necessary."""
        label = self._before or self._attempt
        return TrialFolders(self._files, WEIGHTS).local(TrialFolder.of(trial_id, label))

    def write_state(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write a state from which the trial can resume, and delete its older states.

        Args:
            trial_id: The trial.
            write: Writes the state into an empty local folder.
        """
        self._num_states += 1
        state = TrialFolder.of(trial_id, self._attempt, self._num_states)
        self._write(STATES, state, write)
        states = TrialFolders(self._files, STATES)
        for older in states.existing(trial_id):
            if older < state:
                states.delete(older)

    @contextmanager
    def state(self, trial_id: str) -> Iterator[Path | None]:
        """Context manager: the folder of the trial's newest state, downloaded if necessary.

        Yields:
            The folder; None without a state.
        """
        states = TrialFolders(self._files, STATES)
        newest = states.newest_complete(trial_id)
        if newest is None:
            yield None
            return
        with states.local(newest) as folder:
            yield folder

    def _write(self, kind: str, folder: TrialFolder, write: Callable[[Path], None]) -> None:
        # If a node does not mount the shared disk, it would write into a local folder of the same
        # name.
        if not self._files.exists(MANIFEST):
            rule = "the node that runs the trial must see the study"
            move = "Put the study on a disk that all nodes mount, or on an object store."
            raise StudyError(Fault(self._files.where, rule=rule, move=move))
        TrialFolders(self._files, kind).write(folder, write)
