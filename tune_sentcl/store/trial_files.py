"""What a worker writes of one trial: scores, curves, weights and state, never its row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.score import Score, merged
from tune_sentcl.store.checkpoints import FOLDER, STATES, checkpoints_of
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.rows import CurvePoint, curves_table, scores_table, stored_scores
from tune_sentcl.store.segments import trial_file
from tune_sentcl.store.tables import Query, read_table


class TrialFiles:
    """A worker's handle on a study, from its path alone; takes no lock and can be pickled.

    Every call makes whole files or none. One worker at a time writes a trial's.
    """

    def __init__(self, path: str | Path, filesystem: Any = None) -> None:
        """Point at a study; nothing is read or written yet.

        Args:
            path: The study's folder or URL.
            filesystem: A `pyarrow.fs.FileSystem` in which `path` lies; None to go by `path`.

        Raises:
            StudyError: No file system takes the URL.
        """
        self._files = StudyFiles.at(path, filesystem)

    def write_scores(self, trial_id: str, scores: Iterable[Score]) -> None:
        """Write all of a trial's scores; those of an earlier attempt give way to them.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._require_study()
        self._files.write_table(trial_file("scores", trial_id), scores_table(trial_id, scores))

    def add_scores(self, trial_id: str, scores: Iterable[Score]) -> None:
        """Add scores to those that a trial has; a number that is there stays.

        The weights are the same, so that what is measured again differs by rounding alone.

        Raises:
            StudyError: The study is not visible from here, a file is damaged, or the disk refused.
        """
        self._require_study()
        stored = read_table(self._files, "scores", Query(trial_ids={trial_id}))
        before = stored_scores(stored)
        numbers = [score for score in before if score.value is not None]
        self.write_scores(trial_id, merged(merged(before, scores), numbers))

    def write_curves(self, trial_id: str, points: Sequence[CurvePoint]) -> None:
        """Write all of a trial's curves; those of an earlier attempt give way to them.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._require_study()
        self._files.write_table(trial_file("curves", trial_id), curves_table(trial_id, points))

    def write_checkpoint(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Replace the trial's weights.

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

    @contextmanager
    def state(self, trial_id: str) -> Iterator[Path | None]:
        """The folder of the trial's state, brought here for the block; None if it has none.

        Raises:
            StudyError: It cannot be read.
        """
        states = checkpoints_of(self._files, STATES)
        if not states.has(trial_id):
            yield None
            return
        with states.brought(trial_id) as folder:
            yield folder

    def _write_folder(self, kind: str, trial_id: str, write: Callable[[Path], None]) -> None:
        self._require_study()
        try:
            checkpoints_of(self._files, kind).write(trial_id, write)
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
