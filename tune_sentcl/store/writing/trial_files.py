"""What a worker writes of one trial: scores, curves, weights and state, never its row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.score import Score, merged
from tune_sentcl.store.checkpoints import FOLDER, STATES, checkpoints_of, newest
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.reading.study_tables import Query, read_table
from tune_sentcl.store.rows import (
    CurvePoint,
    curves_table,
    scores_table,
    stored_scores,
)
from tune_sentcl.store.segments import file_of, in_order, own_stem


class TrialFiles:
    """A worker's handle on a study, from its path alone; takes no lock and can be pickled.

    Every call makes whole files or none. One worker at a time writes a trial's.
    """

    def __init__(self, path: str | Path, attempt: str = "", before: str = "") -> None:
        """Point at a study; nothing is read or written yet.

        Args:
            path: The study's folder or URL.
            attempt: The label that the files get, by which the trial's row will name them; empty
                for files that no other attempt can meet.
            before: The label that the trial's row names now, where it has one.

        Raises:
            StudyError: No store takes the URL.
        """
        self._files = StudyFiles.at(path)
        self._attempt, self._before = attempt, before

    def write_scores(self, trial_id: str, scores: Iterable[Score]) -> None:
        """Write all of a trial's scores.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._write("scores", trial_id, scores_table(trial_id, scores))

    def add_scores(self, trial_id: str, scores: Iterable[Score]) -> None:
        """Add scores to those that a trial has; a number that is there stays.

        The weights are the same, so that what is measured again differs by rounding alone.

        Raises:
            StudyError: The study is not visible from here, a file is damaged, or the disk refused.
        """
        before = stored_scores(self._stored("scores", trial_id))
        numbers = [score for score in before if score.value is not None]
        self.write_scores(trial_id, merged(merged(before, scores), numbers))

    def keep_curves(self, trial_id: str) -> None:
        """Let the trial's curves be this attempt's too, which has measured alone.

        Raises:
            StudyError: The study is not visible from here, a file is damaged, or the disk refused.
        """
        if self._attempt != self._before:
            self._write("curves", trial_id, self._stored("curves", trial_id))

    def write_curves(self, trial_id: str, points: Sequence[CurvePoint]) -> None:
        """Write all of a trial's curves, in place of those that this attempt has written.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._write("curves", trial_id, curves_table(trial_id, points))

    def write_checkpoint(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write the trial's weights; they take the place of older ones when its row is there.

        Args:
            trial_id: The trial.
            write: Fills the local folder that it is given.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._write_folder(FOLDER, trial_id, write)

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """The folder of the trial's weights, brought here for the block if it lies elsewhere.

        Raises:
            StudyError: It is not there, or cannot be read.
        """
        return checkpoints_of(self._files).brought(trial_id)

    def write_state(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Replace the state that a running trial can go on from.

        Args:
            trial_id: The trial.
            write: Fills the local folder that it is given.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._write_folder(STATES, trial_id, write)
        states = checkpoints_of(self._files, STATES)
        for name, label in states.waiting():
            if name == trial_id and in_order(label) < in_order(self._attempt):
                states.drop(name, label)

    @contextmanager
    def state(self, trial_id: str) -> Iterator[Path | None]:
        """The folder of the trial's newest state, brought here for the block; None: it has none.

        Raises:
            StudyError: It cannot be read.
        """
        states = checkpoints_of(self._files, STATES)
        label = newest(states, trial_id)
        if label is None:
            yield None
            return
        with states.brought(trial_id, label) as folder:
            yield folder

    def _write(self, folder: str, trial_id: str, table: pa.Table) -> None:
        self._require_study()
        self._files.write_table(file_of(folder, own_stem(trial_id, self._attempt)), table)

    def _stored(self, folder: str, trial_id: str) -> pa.Table:
        self._require_study()
        attempts = {trial_id: self._before} if self._before else {}
        return read_table(self._files, folder, Query(trial_ids={trial_id}, attempts=attempts))

    def _write_folder(self, kind: str, trial_id: str, write: Callable[[Path], None]) -> None:
        self._require_study()
        try:
            checkpoints_of(self._files, kind).write(trial_id, write, self._attempt)
        except OSError as error:
            where = self._files.shown(f"{kind}/{trial_id}")
            rule = f"the trial's {kind} must be writable ({error})"
            move = "Make room or change the rights, then repeat the command."
            raise StudyError(Fault(where, "", "", rule, move)) from error

    def _require_study(self) -> None:
        # A node that does not share the disk must not write into a folder of its own.
        if not self._files.exists(MANIFEST):
            rule = "the study must be visible from the node that runs the trial"
            move = "Put it on a disk that all nodes share, or on an object store."
            raise StudyError(Fault(self._files.where, "", "", rule, move))
