"""The driver of a study: it holds the writer lock, commits rows and compacts files."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.space import Space
from tune_sentcl.store.checkpoints import FOLDER, STATES, checkpoints_of
from tune_sentcl.store.disk import is_temporary
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST, Manifest, PlanRecord, SearchRecord
from tune_sentcl.store.progress import SearchProgress
from tune_sentcl.store.reading.study import EndedTrial, Study
from tune_sentcl.store.rows import TrialRow, trials_table
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import Listing, epoch_of, file_of, label_key, trial_stem
from tune_sentcl.store.writer_lock import LEASES, LOCK, WriterLock
from tune_sentcl.store.writing.compaction import TRIALS_PER_SEGMENT, Compactor, Rewrite


class StudyDriver:
    """The only writer of a study's rows; make one with `open`, and close it.

    Every writing method raises StudyError if the driver is closed, another driver has taken over,
    or the storage cannot be written.

    Attributes:
        study: The study, for reading.
    """

    def __init__(self, study: Study, lock: WriterLock, listings: Iterable[Listing]) -> None:
        """For `open`, which has listed the tables."""
        self.study = study
        self._files = study.files
        self._lock = lock
        self._closed = False
        self._ended = study.ended()
        self._attempts: Counter[str] = Counter()
        self._written: set[str] = set()
        self._recent: dict[str, pa.Table] = {}
        self._uncompacted = {
            name for found in listings for name in found.labels
        } & self._ended.keys()
        for trial_id, label in checkpoints_of(self._files).pending():
            self._promote_or_drop(trial_id, label)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        space: Space,
        command: Sequence[str],
        say: Callable[[str], None] | None = None,
    ) -> Self:
        """Create or continue a study.

        Until `close` or the end of the process, no other driver can open it (`writer_lock.py`).

        Args:
            path: A folder, or the URL of an object store.
            space: The space of the search; a changed file of the same name extends the study.
            command: The driver's command line.
            say: Called with a message before it waits for another driver's lease.

        Raises:
            StudyError: The folder is not a study, its study is damaged or has another space or
                schema, another driver has it, or the storage cannot be written.
        """
        files = StudyFiles.at(path)
        refuse_foreign(files)
        files.refuse_links(LOCK, LEASES, MANIFEST, FOLDER, STATES, *TABLES)
        if not files.exists(MANIFEST):
            files.make_folders()
        lock = WriterLock(files, say)
        try:
            manifest = Manifest.read(files) if files.exists(MANIFEST) else Manifest.new(space)
            manifest.check_space(space, files.where)
            files.sweep("", LEASES, *TABLES)
            for folder in (FOLDER, STATES):
                checkpoints_of(files, folder).sweep()
            listings = [Listing.of(files, folder) for folder in TABLES]
            epoch = max(lock.lease, 1 + _highest_epoch(listings))
            after = manifest.continued(space, command, epoch)
            after.write(files)
            files.make_folders(*TABLES)
            return cls(Study(files, after), lock, listings)
        except BaseException:
            lock.release()
            raise

    def share(self) -> None:
        """Take a lease besides the system's lock, because other machines mount this disk."""
        self._lock.share()
        if Manifest.read(self._files).epoch != self.study.manifest.epoch:
            rule = "another driver has written this study in the meantime"
            raise StudyError(Fault(self._files.where, "", "", rule, "Repeat the command."))

    def next_attempt_label(self, trial_id: str) -> str:
        """The label of the files of a trial's next attempt, for its row.

        Because each attempt has another label, late files of a lost attempt have no effect.
        """
        self._attempts[trial_id] += 1
        return f"{self.study.manifest.epoch}-{self._attempts[trial_id]}"

    def committed_label(self, trial_id: str) -> str:
        """The label of the files that a trial's row names; empty without a row or a label."""
        ended = self._ended.get(trial_id)
        return ended.attempt_files if ended else ""

    def commit(
        self, row: TrialRow, running: Collection[str] = (), *, weights: bool = True
    ) -> None:
        """Write a trial's row, which makes its scores and curves effective.

        The row replaces an older one. After every `TRIALS_PER_SEGMENT` trials, their files become
        segments.

        Args:
            row: How the trial ended.
            running: Trials whose scores and curves workers may be writing now.
            weights: Whether an attempt at the trial may have written weights.

        Raises:
            ValueError: The trial has finished, and the row has another status.
            StudyError: A file is damaged; see also the class.
        """
        self._require_lock()
        name = row.trial_id
        before = self._ended.get(name)
        if row.status != "finished" and before is not None and before.status == "finished":
            raise ValueError(f"trial {name} has finished and must not become {row.status}")
        table = trials_table([row])
        file = file_of("trials", trial_stem(name, str(self.study.manifest.epoch)))
        # A file of this epoch exists only if this driver wrote it.
        self._files.write_table(file, table, new=name not in self._written)
        self._written.add(name)
        self._ended[name] = EndedTrial(row.status, row.attempt_files or "")
        self._uncompacted.add(name)
        self._recent[name] = table
        if weights:
            self._promote_or_drop_all(row)
        if len(self._uncompacted.difference(running)) >= TRIALS_PER_SEGMENT:
            self._compactor(running).into_segment()
            self._after_segment(running)

    def _promote_or_drop_all(self, row: TrialRow) -> None:
        if row.attempt_files:
            self._promote_or_drop(row.trial_id, row.attempt_files)
        if self._attempts[row.trial_id] > 1:  # a lost attempt may have left weights
            for name, label in checkpoints_of(self._files).pending():
                if name == row.trial_id:
                    self._promote_or_drop(name, label)

    def _promote_or_drop(self, trial_id: str, label: str) -> None:
        """Commit pending weights if the trial's row names their attempt; else delete them."""
        ended = self._ended.get(trial_id)
        weights = checkpoints_of(self._files)
        if ended == ("finished", label):
            weights.promote(trial_id, label)
        else:
            weights.drop(trial_id, label)

    def record(self, search: SearchRecord | None = None, plan: PlanRecord | None = None) -> None:
        """Write a search into `study.json`, after its checks have passed and after its end.

        Args:
            search: The search; None keeps the stored one.
            plan: Its estimated and actual duration; None keeps the stored one.
        """
        self._require_lock()
        before = self.study.manifest
        manifest = replace(before, search=search or before.search, plan=plan or before.plan)
        manifest.write(self._files)
        self.study = replace(self.study, manifest=manifest)

    def write_progress(self, progress: SearchProgress) -> None:
        """Write `progress.json`."""
        self._require_lock()
        progress.write(self._files)

    def keep_checkpoints(self, trial_ids: Collection[str]) -> None:
        """Delete the weights of all other trials, including trials without a row.

        Args:
            trial_ids: The trials whose weights are kept.
        """
        self._require_lock()
        checkpoints = checkpoints_of(self._files)
        for trial_id in sorted(checkpoints.complete().difference(trial_ids)):
            checkpoints.delete(trial_id)

    def drop_state(self, trial_id: str) -> None:
        """Delete a trial's state."""
        self._require_lock()
        checkpoints_of(self._files, STATES).delete(trial_id)

    def compact(self, rewrite: Rewrite | None = None, running: Collection[str] = ()) -> None:
        """Compact each table into one file.

        Args:
            rewrite: Changes columns of the trials table, some rows at a time; it must keep the
                rows, their order and their `trial_id`.
            running: Trials whose scores and curves workers may be writing now.

        Raises:
            ValueError: `rewrite` changed the rows.
            StudyError: A file is damaged; see also the class.
        """
        self._require_lock()
        compactor = self._compactor(running)
        compactor.into_one_file()
        if rewrite:  # after the compaction, so that the new file changes all rows at once
            replace(compactor, rewrites={"trials": _checked(rewrite)}).into_one_file()
        self._after_segment(running)

    def close(self) -> None:
        """Release the study to other drivers; a second call does nothing."""
        self._closed = True
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

    def _compactor(self, running: Collection[str]) -> Compactor:
        epoch = self.study.manifest.epoch
        labels_by_trial = Listing.of(self._files, "trials").labels
        older = {t for t, labels in labels_by_trial.items() if label_key(labels[-1])[0] < epoch}
        if older:  # an expired driver may have written a row after this driver read the study
            ended = self.study.ended()
            self._ended.update((t, ended[t]) for t in older & ended.keys())
        return Compactor(self._files, self._ended, epoch, running, self._recent)

    def _after_segment(self, running: Collection[str]) -> None:
        self._recent.clear()
        self._uncompacted.intersection_update(running)

    def _require_lock(self) -> None:
        if self._closed:
            rule, move = "this driver is closed", "Open the study again."
            raise StudyError(Fault(self._files.where, "", "", rule, move))
        self._lock.check()


def _checked(rewrite: Rewrite) -> Rewrite:
    def checked_rewrite(table: pa.Table) -> pa.Table:
        new = rewrite(table)
        if not new["trial_id"].equals(table["trial_id"]):
            raise ValueError("rewrite must keep the rows and their trial_id")
        return new

    return checked_rewrite


def _highest_epoch(listings: Sequence[Listing]) -> int:
    """The highest epoch in the tables' file names; `study.json` may be an older copy."""
    stems = [stem for found in listings for stem in found.shared]
    all_labels = [
        label for found in listings for labels in found.labels.values() for label in labels
    ]
    return max([*map(epoch_of, stems), *(label_key(label)[0] for label in all_labels)], default=0)


def refuse_foreign(files: StudyFiles) -> None:
    """Raise StudyError unless the folder is a study, empty or missing."""
    if not files.is_folder() or files.exists(MANIFEST):
        return
    # A driver that was killed before it wrote study.json left its lock and temporary files.
    ours = (LOCK, LEASES)
    others = [name for name in files.names() if name not in ours and not is_temporary(name)]
    if others:
        rule = f"must be a study or empty: it holds {others[0]} but no {MANIFEST}"
        raise StudyError(Fault(files.where, "", "", rule, "Choose a new or empty folder."))
