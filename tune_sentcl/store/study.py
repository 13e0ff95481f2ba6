"""A study: the folder that holds one space's trials. The driver writes it, anyone reads it."""

from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.space import Space
from tune_sentcl.store.compaction import compact, compacted_statuses, replace, settle
from tune_sentcl.store.disk import is_temporary
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.lock import LOCK, StudyLock
from tune_sentcl.store.manifest import MANIFEST, Manifest
from tune_sentcl.store.rows import TrialRow, trials_table
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.tables import COMPACTED, read_folder
from tune_sentcl.store.writer import StudyWriter, checkpoint_folder, trial_file


class Study(StudyWriter):
    """A study on disk; make one with `open` to write it, or with `read`.

    Attributes:
        files: Where it lies.
        manifest: What `study.json` says.
    """

    def __init__(self, files: StudyFiles, manifest: Manifest, lock: StudyLock | None) -> None:
        """Used by `open` and `read`."""
        self.files = files
        self.manifest = manifest
        self._lock = lock
        self._writable = False
        self._compacted: dict[str, str] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        space: Space,
        command: Sequence[str],
        filesystem: Any = None,
    ) -> Self:
        """Begin a study, or continue one, as its only driver.

        On a disk the driver holds a lock until `close` or its death; an object store has no locks.

        Args:
            path: A folder, or a URL that `pyarrow.fs.FileSystem.from_uri` takes.
            space: What is searched; a changed text of the same name extends the study.
            command: The driver's command line; its secrets are hidden before it is kept.
            filesystem: A `pyarrow.fs.FileSystem` in which `path` lies; None to go by `path`.

        Raises:
            StudyError: The folder holds something else, another space's study, or a damaged or
                newer one; another driver has it; or the disk refused.
        """
        files = StudyFiles.at(path, filesystem)
        _refuse_foreign(files)
        if not files.exists(MANIFEST):
            files.make_folders()
        lock = StudyLock(Path(files.root)) if files.local else None
        try:
            study = cls(files, _manifest(files, space, command), lock)
            study._prepare()
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return study

    @classmethod
    def read(cls, path: str | Path, filesystem: Any = None) -> Self:
        """Open a study for reading only; takes no lock, and the disk may be read-only.

        Raises:
            StudyError: There is no study, or it is damaged or of a newer release.
        """
        files = StudyFiles.at(path, filesystem)
        return cls(files, Manifest.read(files), None)

    def trials(self) -> pa.Table:
        """One row a trial that has ended; columns as in `schema.TRIALS`.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        return read_folder(self.files, "trials")

    def scores(self) -> pa.Table:
        """The numbers of trials that have ended; columns as in `schema.SCORES`.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        return read_folder(self.files, "scores", self._committed())

    def curves(self) -> pa.Table:
        """The points of trials that have ended; columns as in `schema.CURVES`.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        return read_folder(self.files, "curves", self._committed())

    def commit(self, row: TrialRow) -> None:
        """Write a trial's row, from when on its scores and curves count; an older row is replaced.

        Raises:
            StudyError: The study is open for reading only, or the disk refused.
        """
        self._require_driver()
        name, table = trial_file("trials", row.trial_id), trials_table([row])
        if row.trial_id in self._compacted:
            stale = self._compacted[row.trial_id] == "failed"
            replace(self.files, table, stale=stale)
            self._compacted[row.trial_id] = row.status
        else:
            self.files.write_table(name, table)

    def discard(self, trial_id: str) -> None:
        """Delete scores and curves that an earlier attempt left; call it before a repetition.

        Raises:
            StudyError: The study is open for reading only, or the disk refused.
        """
        self._require_driver()
        for folder in ("scores", "curves"):
            self.files.delete(trial_file(folder, trial_id))

    def keep_checkpoints(self, trial_ids: Collection[str]) -> None:
        """Delete the checkpoints of all other trials that have ended; those under way keep theirs.

        Raises:
            StudyError: The study is open for reading only, or the disk refused.
        """
        self._require_driver()
        for trial_id in self._committed().intersection(self.files.names("checkpoints")):
            if trial_id not in trial_ids:
                self.files.delete_folder(checkpoint_folder(trial_id))

    def compact(self) -> None:
        """Bring each table into one file, as a finished study should be.

        Raises:
            StudyError: The study is open for reading only, a file is damaged, or the disk refused.
        """
        self._require_driver()
        compact(self.files)
        self._compacted = compacted_statuses(self.files)

    def close(self) -> None:
        """Let other drivers have the study; a second call does nothing."""
        self._writable = False
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        self.files.make_folders(*TABLES)
        self.files.sweep("", *TABLES)
        settle(self.files)
        self._compacted = compacted_statuses(self.files)
        self._writable = True

    def _committed(self) -> set[str]:
        own = set(self.files.stems("trials")) - {COMPACTED}
        if not self._writable:  # the driver's own knowledge is exact; others must look
            self._compacted = compacted_statuses(self.files)
        return own.union(self._compacted)

    def _require_driver(self) -> None:
        if not self._writable:
            move = "Open it with Study.open."
            raise StudyError(Fault(self.files.where, "", "", "is open for reading only", move))


def _refuse_foreign(files: StudyFiles) -> None:
    if not files.is_folder() or files.exists(MANIFEST):
        return
    # A driver that was killed before it wrote study.json leaves its lock and temporary files.
    others = [name for name in files.names() if name != LOCK and not is_temporary(name)]
    if others:
        rule = f"is not empty and no study: it holds {others[0]} but no {MANIFEST}"
        raise StudyError(Fault(files.where, "", "", rule, "Choose a new or empty folder."))


def _manifest(files: StudyFiles, space: Space, command: Sequence[str]) -> Manifest:
    old = Manifest.read(files) if files.exists(MANIFEST) else Manifest.new(space)
    if old.space != space.name:
        rule = f"belongs to space {old.space!r}, not {space.name!r}"
        move = "Choose another folder for the study, or run the study's own space."
        raise StudyError(Fault(files.where, "", "", rule, move))
    # Schema 1 is the first. From schema 2 on, the tables of older studies are rewritten here,
    # before study.json gets the new number.
    manifest = old.continued(space, command)
    manifest.write(files)
    return manifest
