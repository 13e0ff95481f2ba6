"""Writing a study: its one driver, who has the lock, commits rows and brings files together."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.space import Space
from tune_sentcl.store.checkpoints import FOLDER, STATES, checkpoints_of
from tune_sentcl.store.disk import is_temporary
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.gathering import GATHERED, Gathering, Rewrite
from tune_sentcl.store.lock import LOCK, StudyLock
from tune_sentcl.store.manifest import MANIFEST, Manifest, PlanRecord, SearchRecord
from tune_sentcl.store.migration import migrate
from tune_sentcl.store.rows import TrialRow, trials_table
from tune_sentcl.store.schema import SCHEMA_VERSION, TABLES
from tune_sentcl.store.segments import Listing, trial_file
from tune_sentcl.store.study import Study


class StudyDriver:
    """The one writer of a study's rows; make one with `open`, and close it.

    Attributes:
        study: The study, for reading.
    """

    def __init__(self, study: Study, lock: StudyLock | None) -> None:
        """Used by `open`."""
        self.study = study
        self._files = study.files
        self._lock = lock
        self._closed = False
        # One string a status, not one a trial.
        self._statuses = {t: sys.intern(status) for t, status in study.statuses().items()}
        self._recent: dict[str, pa.Table] = {}
        self._loose: set[str] = set()
        for folder in TABLES:
            self._loose.update(Listing.of(self._files, folder).own)
        self._loose &= self._statuses.keys()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        space: Space,
        command: Sequence[str],
        selections: Collection[str] = (),
        filesystem: Any = None,
    ) -> Self:
        """Begin a study, or continue one; one of an older schema is rewritten first.

        On a disk the driver holds a lock until `close` or its death; an object store has no locks.

        Args:
            path: A folder, or a URL that `pyarrow.fs.FileSystem.from_uri` takes.
            space: What is searched; a changed text of the same name extends the study.
            command: The driver's command line; its secrets are hidden before it is kept.
            selections: Fingerprints of development sets that may have chosen weights in a study
                of schema 1.
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
            manifest = _manifest(files, space)
            files.sweep("", *TABLES)
            for folder in (FOLDER, STATES):
                checkpoints_of(files, folder).sweep()
            if manifest.schema < SCHEMA_VERSION:
                migrate(files, manifest.schema, selections)
            manifest = manifest.continued(space, command)
            manifest.write(files)
            files.make_folders(*TABLES)
            return cls(Study(files, manifest), lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def commit(self, row: TrialRow, running: Collection[str] = ()) -> None:
        """Write a trial's row, from when on its scores and curves count; it replaces an older one.

        Every `GATHERED` trials their files are brought into segments.

        Args:
            row: How the trial ended.
            running: Trials whose scores and curves workers may be writing now.

        Raises:
            ValueError: A finished trial would become an unfinished one.
            StudyError: The driver is closed, a file is damaged, or the disk refused.
        """
        self._require_open()
        name = row.trial_id
        if row.status != "finished" and self._statuses.get(name) == "finished":
            raise ValueError(f"trial {name} has finished; it must not become {row.status}")
        table = trials_table([row])
        self._files.write_table(trial_file("trials", name), table)
        self._statuses[name] = row.status
        self._loose.add(name)
        self._recent[name] = table
        if row.status != "finished":  # an earlier attempt may have got as far as its scores
            self._files.delete(trial_file("scores", name))
        if len(self._loose.difference(running)) >= GATHERED:
            self._gathering(running).into_segment()
            self._gathered(running)

    def record(self, search: SearchRecord | None = None, plan: PlanRecord | None = None) -> None:
        """Write down what a search asks, once it is sure that it can be had, and came to.

        Args:
            search: What it asks; None keeps what is there.
            plan: What it took; None likewise.

        Raises:
            StudyError: The driver is closed, or the disk refused.
        """
        self._require_open()
        before = self.study.manifest
        asked = search.masked() if search else before.search
        manifest = replace(before, search=asked, plan=plan or before.plan)
        manifest.write(self._files)
        self.study = replace(self.study, manifest=manifest)

    def keep_checkpoints(self, trial_ids: Collection[str]) -> None:
        """Delete the checkpoints of all other trials, also of those that never got a row.

        Args:
            trial_ids: Every trial whose weights anybody still needs.

        Raises:
            StudyError: The driver is closed, or the disk refused.
        """
        self._require_open()
        checkpoints = checkpoints_of(self._files)
        for trial_id in sorted(checkpoints.whole().difference(trial_ids)):
            checkpoints.delete(trial_id)

    def drop_state(self, trial_id: str) -> None:
        """Delete what a trial has left to go on from.

        Raises:
            StudyError: The driver is closed, or the disk refused.
        """
        self._require_open()
        checkpoints_of(self._files, STATES).delete(trial_id)

    def compact(self, rewrite: Rewrite | None = None, running: Collection[str] = ()) -> None:
        """Bring each table into one file, as a finished study should be.

        Args:
            rewrite: What becomes of the trials table's rows, a stretch of them at a time; it may
                change columns, but not how many rows there are nor whose.
            running: Trials whose scores and curves workers may be writing now.

        Raises:
            ValueError: `rewrite` gave other rows.
            StudyError: The driver is closed, a file is damaged, or the disk refused.
        """
        self._require_open()
        gathering = self._gathering(running)
        gathering.into_one()
        if rewrite:  # from one file to one file, so that all rows change at once
            replace(gathering, rewrites={"trials": _checked(rewrite)}).into_one()
        self._gathered(running)

    def close(self) -> None:
        """Let other drivers have the study; a second call does nothing."""
        self._closed = True
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

    def _gathering(self, running: Collection[str]) -> Gathering:
        return Gathering(self._files, self._statuses, running, self._recent)

    def _gathered(self, running: Collection[str]) -> None:
        self._recent.clear()
        self._loose.intersection_update(running)

    def _require_open(self) -> None:
        if self._closed:
            rule, move = "this driver is closed", "Open the study again."
            raise StudyError(Fault(self._files.where, "", "", rule, move))


def _checked(rewrite: Rewrite) -> Rewrite:
    def checked(table: pa.Table) -> pa.Table:
        new = rewrite(table)
        if not new["trial_id"].equals(table["trial_id"]):
            raise ValueError("a rewriting must leave rows and their trial_id as they are")
        return new

    return checked


def _refuse_foreign(files: StudyFiles) -> None:
    if not files.is_folder() or files.exists(MANIFEST):
        return
    # A driver that was killed before it wrote study.json leaves its lock and temporary files.
    others = [name for name in files.names() if name != LOCK and not is_temporary(name)]
    if others:
        rule = f"is not empty and no study: it holds {others[0]} but no {MANIFEST}"
        raise StudyError(Fault(files.where, "", "", rule, "Choose a new or empty folder."))


def _manifest(files: StudyFiles, space: Space) -> Manifest:
    manifest = Manifest.read(files) if files.exists(MANIFEST) else Manifest.new(space)
    manifest.check_space(space, files.where)
    return manifest
