"""Files that a worker writes for one trial: scores, curves, weights and state."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.score import Score, merged
from tune_sentcl.store.checkpoints import FOLDER, STATES, checkpoints_of, newest_label
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.reading.study_tables import Query, read_table
from tune_sentcl.store.rows import CurvePoint, curves_table, scores_table, stored_scores
from tune_sentcl.store.segments import file_of, label_key, trial_stem


class TrialFiles:
    """A worker's access to a study, without a lock; can be pickled.

    Every write is atomic. Only one worker at a time may write the files of a trial. Every method
    raises StudyError if this machine cannot see the study, or a file cannot be read or written.
    """

    def __init__(self, path: str | Path, attempt: str = "", before: str = "") -> None:
        """Keep the location of a study, without reading or writing.

        Args:
            path: The study's folder or URL.
            attempt: The label of the files, which the trial's row will name; empty if there are
                no other attempts.
            before: The label that the trial's row names now; empty without one.

        Raises:
            StudyError: The URL has an unknown scheme or credentials.
        """
        self._files = StudyFiles.at(path)
        self._attempt, self._before = attempt, before

    def write_scores(self, trial_id: str, scores: Iterable[Score]) -> None:
        """Write a trial's scores; they replace those of this attempt."""
        self._write("scores", trial_id, scores_table(trial_id, scores))

    def add_scores(self, trial_id: str, scores: Iterable[Score]) -> None:
        """Add scores to those that a trial has; existing values are kept.

        The weights are the same, so values that are measured again differ by rounding only.
        """
        before = stored_scores(self._stored("scores", trial_id))
        numbers = [score for score in before if score.value is not None]
        self.write_scores(trial_id, merged(merged(before, scores), numbers))

    def keep_curves(self, trial_id: str) -> None:
        """Copy the trial's curves to this attempt, which has only measured its weights."""
        if self._attempt != self._before:
            self._write("curves", trial_id, self._stored("curves", trial_id))

    def write_curves(self, trial_id: str, points: Sequence[CurvePoint]) -> None:
        """Write a trial's curves; they replace those of this attempt."""
        self._write("curves", trial_id, curves_table(trial_id, points))

    def write_checkpoint(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write the trial's weights; the commit of its row makes them replace older ones.

        Args:
            trial_id: The trial.
            write: Writes the weights into an empty local folder.
        """
        self._write_folder(FOLDER, trial_id, write)

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """The local folder of the trial's weights, downloaded for the block if necessary."""
        return checkpoints_of(self._files).local_folder(trial_id)

    def write_state(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Replace the state from which a running trial can resume.

        Args:
            trial_id: The trial.
            write: Writes the state into an empty local folder.
        """
        self._write_folder(STATES, trial_id, write)
        states = checkpoints_of(self._files, STATES)
        for name, label in states.pending():
            if name == trial_id and label_key(label) < label_key(self._attempt):
                states.drop(name, label)

    @contextmanager
    def state(self, trial_id: str) -> Iterator[Path | None]:
        """The local folder of the trial's newest state, downloaded for the block if necessary.

        Yields:
            The folder; None without a state.
        """
        states = checkpoints_of(self._files, STATES)
        label = newest_label(states, trial_id)
        if label is None:
            yield None
            return
        with states.local_folder(trial_id, label) as folder:
            yield folder

    def _write(self, folder: str, trial_id: str, table: pa.Table) -> None:
        self._require_study()
        self._files.write_table(file_of(folder, trial_stem(trial_id, self._attempt)), table)

    def _stored(self, folder: str, trial_id: str) -> pa.Table:
        self._require_study()
        attempts = {trial_id: self._before} if self._before else {}
        return read_table(self._files, folder, Query(trial_ids={trial_id}, attempts=attempts))

    def _write_folder(self, kind: str, trial_id: str, write: Callable[[Path], None]) -> None:
        self._require_study()
        try:
            checkpoints_of(self._files, kind).write(trial_id, write, self._attempt)
        except OSError as error:
            where = self._files.display_path(f"{kind}/{trial_id}")
            rule = f"the trial's {kind} must be writable ({error})"
            move = "Free some space or correct the permissions, then repeat the command."
            raise StudyError(Fault(where, "", "", rule, move)) from error

    def _require_study(self) -> None:
        # A node that does not mount the shared disk would write into a local folder.
        if not self._files.exists(MANIFEST):
            rule = "the node that runs the trial must see the study"
            move = "Put the study on a disk that all nodes mount, or on an object store."
            raise StudyError(Fault(self._files.where, "", "", rule, move))
