"""The files that a worker writes for one trial: its weights and its states."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.trial_folders import STATES, WEIGHTS, TrialFolder, TrialFolders


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
            before: The label that the trial's row names now; empty without one.

        Raises:
            StudyError: The URL has an unknown scheme or credentials.
        """
        self._files = StudyFiles.at(path)
        self._attempt, self._before = attempt, before
        self._num_states = 0

    def write_checkpoint(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write the trial's weights; the commit of its row makes them replace older ones.

        Args:
            trial_id: The trial.
            write: Writes the weights into an empty local folder.
        """
        self._write(WEIGHTS, TrialFolder.of(trial_id, self._attempt), write)

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """The local folder of the trial's weights, downloaded for the block if necessary."""
        label = self._before or self._attempt
        return TrialFolders(self._files, WEIGHTS).local(TrialFolder.of(trial_id, label))

    def write_state(self, trial_id: str, write: Callable[[Path], None]) -> None:
        """Write a state from which a running trial can resume, and delete its older ones.

        Args:
            trial_id: The trial.
            write: Writes the state into an empty local folder.
        """
        self._num_states += 1
        state = TrialFolder.of(trial_id, self._attempt, self._num_states)
        self._write(STATES, state, write)
        states = TrialFolders(self._files, STATES)
        for older in states.found(trial_id):
            if older < state:
                states.delete(older)

    @contextmanager
    def state(self, trial_id: str) -> Iterator[Path | None]:
        """The local folder of the trial's newest state, downloaded for the block if necessary.

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
        # A node that does not mount the shared disk would write into a local folder.
        if not self._files.exists(MANIFEST):
            rule = "the node that runs the trial must see the study"
            move = "Put the study on a disk that all nodes mount, or on an object store."
            raise StudyError(Fault(self._files.where, "", "", rule, move))
        try:
            TrialFolders(self._files, kind).write(folder, write)
        except OSError as error:
            where = self._files.display_path(f"{kind}/{folder}")
            rule = f"the trial's {kind} must be writable ({error})"
            move = "Free some space or correct the permissions, then repeat the command."
            raise StudyError(Fault(where, "", "", rule, move)) from error
