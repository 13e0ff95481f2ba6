"""The driver of a study: it holds the writer lock and writes every row."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.score import Score, merged
from tune_sentcl.space import Space
from tune_sentcl.store.driver_files import SCRATCH, DriverFiles, TableWriter
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST, Manifest, SearchRecord
from tune_sentcl.store.mined import MINED, mined_file
from tune_sentcl.store.parts import encoded_part
from tune_sentcl.store.progress import PROGRESS, SearchProgress
from tune_sentcl.store.rows import (
    TABLES,
    CurvePoint,
    TrialRow,
    curves_table,
    scores_table,
    stored_scores,
    trials_table,
)
from tune_sentcl.store.study import EndedTrial, Study, is_own
from tune_sentcl.store.trial_folders import (
    ITEMS,
    STATES,
    WEIGHTS,
    TrialFolder,
    TrialFolders,
)
from tune_sentcl.store.writer_lock import LEASES, WriterLock


class StudyDriver:
    """The only writer of a study's rows; make one with `open`, and close it.

    Every writing method raises StudyError if the driver is closed, another driver has taken over,
    or the storage cannot be written.

    Attributes:
        study: The study, for reading.
    """

    def __init__(
        self, study: Study, lock: WriterLock, files: DriverFiles, ended: dict[str, EndedTrial]
    ) -> None:
        """Only `open` calls this, after it has read how the trials ended."""
        self.study = study
        self._lock, self._files = lock, files
        self._closed = False
        self._ended = ended
        self._attempts: Counter[str] = Counter()
        finished = [t for t, end in ended.items() if end.status == "finished"]
        self._trials = TableWriter(files, "trials", ended)
        self._scores = TableWriter(files, "scores", finished)
        self._curves = TableWriter(files, "curves", ended)
        self._weights = TrialFolders(study.files, WEIGHTS)
        self._states = TrialFolders(study.files, STATES)
        for folder in self._weights.existing():
            # These folders belong to lost attempts, or their deletion was interrupted.
            if not (is_own(folder, ended) and self._weights.is_complete(folder)):
                self._delete(self._weights, folder)

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
            space: The search space; a changed file with the same name extends the study.
            command: The driver's command line.
            say: Called with a message before this function waits for another driver's lease.

        Raises:
            StudyError: The folder is not a study, its study is damaged or has another space or
                schema, another driver has it, or the storage cannot be written.
        """
        files = StudyFiles.at(path)
        refuse_foreign(files)
        files.refuse_links(LEASES, MANIFEST, WEIGHTS, STATES, ITEMS, MINED, *TABLES)
        if not files.exists(MANIFEST):
            files.make_folders()
        lock = WriterLock(files, say)
        with ExitStack() as undone:
            undone.callback(lock.release)
            if files.exists(MANIFEST):
                Manifest.read(files).check_space(space, files.where)
            own = DriverFiles(files, lock.lease)
            undone.callback(own.close)
            if lock.was_expired:
                own.take_over(TABLES)
                lock.was_expired = False
            data = own.read(MANIFEST)
            manifest = Manifest.parse(data, files) if data is not None else Manifest.new(space)
            ended = {} if data is None else Study(files, manifest).ended()
            after = manifest.continued(space, command, lock.lease)
            lock.check()  # checked after the read, because a successor may have written before it
            own.write(MANIFEST, after.encoded())
            files.make_folders(*TABLES)
            driver = cls(Study(files, after), lock, own, ended)
            undone.pop_all()
            return driver

    def next_attempt_label(self, trial_id: str) -> str:
        """A new label for a trial's next attempt, which its row, weights and states carry.

        Each attempt has its own label, so files that a lost attempt writes late have no effect.
        """
        self._attempts[trial_id] += 1
        return f"{self.study.manifest.epoch}-{self._attempts[trial_id]}"

    def committed_label(self, trial_id: str) -> str:
        """The label that a trial's row names; empty without a row or a label."""
        ended = self._ended.get(trial_id)
        return ended.attempt_files if ended else ""

    def commit(
        self,
        row: TrialRow,
        scores: Iterable[Score] = (),
        curves: Sequence[CurvePoint] | None = None,
        *,
        weights: bool = True,
    ) -> None:
        """Write a trial's curves, its scores if it has finished, and finally its row.

        They replace older curves and rows. If the trial had finished before, its old scores keep
        their values and only missing ones are added: the weights are the same, so a repeated
        measurement differs only by rounding.

        Args:
            row: The row of the ended trial.
            scores: Its scores.
            curves: Its curves; None keeps the stored curves.
            weights: Whether an attempt at the trial may have written weights.

        Raises:
            ValueError: The trial had finished before, and the row has another status.
            StudyError: A file is damaged; see also the class.
        """
        self._require_lock()
        name = row.trial_id
        before = self._ended.get(name)
        had_finished = before is not None and before.status == "finished"
        if row.status != "finished" and had_finished:
            raise ValueError(f"trial {name} has finished and must not become {row.status}")
        if curves is not None:
            self._curves.replace(name, curves_table(name, curves))
        if row.status == "finished":
            if had_finished:
                scores = _with_kept(stored_scores(self._scores.rows(name)), scores)
            self._scores.replace(name, scores_table(name, scores))
        self._trials.replace(name, trials_table([row]))
        self._ended[name] = EndedTrial(row.status, row.attempt_files or "")
        if weights or had_finished:
            self._drop_lost_weights(name, before)

    def _drop_lost_weights(self, trial_id: str, before: EndedTrial | None) -> None:
        """Delete the weights of attempts that the trial's row does not name."""
        failed = self._ended[trial_id].status == "failed"
        if before is not None or self._attempts[trial_id] > 1 or failed:
            for folder in self._weights.existing(trial_id):
                if not is_own(folder, self._ended):
                    self._delete(self._weights, folder)

    def record(
        self, search: SearchRecord | None = None, measured: Mapping[str, Any] | None = None
    ) -> None:
        """Write a search into `study.json`, after its checks have passed.

        Args:
            search: The search; None keeps the stored one.
            measured: The values of `evaluation` that say how its trials are scored; None keeps the
                stored ones.
        """
        self._require_lock()
        before = self.study.manifest
        manifest = replace(
            before, search=search or before.search, measured=measured or before.measured
        )
        self._files.write(MANIFEST, manifest.encoded())
        self.study = replace(self.study, manifest=manifest)

    def write_progress(self, progress: SearchProgress) -> None:
        """Write `progress.json`."""
        self._require_lock()
        self._files.write(PROGRESS, progress.encoded(), any_version=True)

    def write_mined(self, name: str, negatives: pa.Table) -> None:
        """Write mined negatives, which a resumed search reads instead of mining again."""
        self._require_lock()
        self.study.files.make_folders(MINED)
        self._files.write(mined_file(name), encoded_part(negatives), any_version=True)

    def checkpoints(self) -> set[str]:
        """The finished trials with weights."""
        folders = self._weights.existing()
        return {folder.trial_id for folder in folders if is_own(folder, self._ended)}

    def keep_checkpoints(self, trial_ids: Collection[str]) -> None:
        """Delete the weights of all other finished trials.

        Args:
            trial_ids: The trials whose weights are kept.
        """
        self._require_lock()
        for folder in self._weights.existing():
            if folder.trial_id not in trial_ids and is_own(folder, self._ended):
                self._delete(self._weights, folder)

    def drop_state(self, trial_id: str) -> None:
        """Delete a trial's states."""
        self._require_lock()
        for folder in self._states.existing(trial_id):
            self._delete(self._states, folder)

    def rewrite(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Change columns of rows of `trials`.

        Args:
            change: Maps a table with some of the rows to the changed table; it must keep the rows,
                their order and their `trial_id`.

        Raises:
            ValueError: `change` changed the rows.
            StudyError: A file is damaged; see also the class.
        """
        self._require_lock()
        self._trials.rewrite(change)

    def close(self) -> None:
        """Release the study to other drivers; a second call does nothing."""
        if not self._closed:
            self._closed = True
            try:
                self._files.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _delete(self, folders: TrialFolders, folder: TrialFolder) -> None:
        """Delete a folder, unless an attempt of a later driver may have written it."""
        self._require_lock()
        if folder.epoch <= self.study.manifest.epoch:
            folders.delete(folder)

    def _require_lock(self) -> None:
        if self._closed:
            rule, move = "this driver is closed", "Open the study again."
            raise StudyError(Fault(self.study.files.where, rule=rule, move=move))
        self._lock.check()


def _with_kept(before: Sequence[Score], scores: Iterable[Score]) -> list[Score]:
    """New scores, in which each value that the trial already had is kept."""
    return merged(merged(before, scores), [score for score in before if score.value is not None])


def refuse_foreign(files: StudyFiles) -> None:
    """Raise StudyError unless a folder is a study, or could become one.

    It could if it is empty or missing, and lies in no other study.
    """
    if files.is_folder() and files.exists(MANIFEST):
        return
    # A driver that was killed before it wrote study.json has left its lease and its own folder,
    # which do not count.
    names = (name for name in files.names() if not name.startswith(SCRATCH))
    others = [name for name in names if name != LEASES]
    if others:
        rule = f"must be a study or empty, but holds {others[0]} and no {MANIFEST}"
        raise StudyError(Fault(files.where, rule=rule, move="Choose a new or empty folder."))
    if outer := files.inside_of(MANIFEST):
        rule = f"must not lie inside another study, {outer}"
        raise StudyError(Fault(files.where, rule=rule, move="Choose a folder outside that study."))
