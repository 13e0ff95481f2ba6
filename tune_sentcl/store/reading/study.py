"""Reading a study, which holds the trials of one space."""

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

from tune_sentcl.errors import Fault
from tune_sentcl.store.checkpoints import STATES, checkpoints_of, newest_label
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.reading.study_tables import Query, read_table


class EndedTrial(NamedTuple):
    """How a trial with a row ended, and the label of its files; empty if they have none."""

    status: str
    attempt_files: str = ""


@dataclass(frozen=True)
class Study:
    """A running or finished study, opened by `read`; every call reads its files again.

    Every method raises StudyError if a file is damaged or cannot be read.

    Attributes:
        files: Its files.
        manifest: The content of `study.json`.
        skipped: Collects the fault of each damaged table file by the file's name, and the other
            files are read. None: the first damaged file raises.
    """

    files: StudyFiles
    manifest: Manifest
    skipped: MutableMapping[str, Fault] | None = None

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        skipped: MutableMapping[str, Fault] | None = None,
    ) -> Self:
        """Open a study without a lock; its disk may be read-only.

        Args:
            path: The study's folder or URL.
            skipped: See the class.

        Raises:
            DamagedError: `study.json` is damaged.
            StudyError: There is no study, or it has another schema.
        """
        files = StudyFiles.at(path)
        return cls(files, Manifest.read(files), skipped)

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per ended trial, with the columns of `schema.TRIALS`.

        Args:
            columns: Columns to read; None for all.
        """
        return read_table(self.files, "trials", Query(columns, skipped=self.skipped))

    def scores(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """The scores of finished trials, with the columns of `schema.SCORES`.

        Args:
            columns: Columns to read; None for all.
            where: A `pyarrow.compute.Expression` that filters rows by any columns; None for all.
            among: Finished trials with their `attempt_files`, if the caller has read them; None
                reads them and takes all.
        """
        if among is None:
            among = {t: e.attempt_files for t, e in self.ended().items() if e.status == "finished"}
        return self._rows_of(among, "scores", Query(columns, where))

    def curves(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """The curves of ended trials, with the columns of `schema.CURVES`.

        Args:
            columns: Columns to read; None for all.
            where: A `pyarrow.compute.Expression` that filters rows by any columns; None for all.
            among: Ended trials with their `attempt_files`, if the caller has read them; None
                reads them and takes all.
        """
        if among is None:
            among = {t: e.attempt_files for t, e in self.ended().items()}
        return self._rows_of(among, "curves", Query(columns, where))

    def checkpoints(self) -> set[str]:
        """The trials with weights."""
        return checkpoints_of(self.files).complete()

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """The local folder of a trial's weights, downloaded for the block if necessary."""
        return checkpoints_of(self.files).local_folder(trial_id)

    def states(self) -> set[str]:
        """The trials with a state to resume from."""
        return checkpoints_of(self.files, STATES).trials()

    def state_file(self, trial_id: str, name: str) -> bytes | None:
        """One file of a trial's newest state; None if it is missing."""
        states = checkpoints_of(self.files, STATES)
        label = newest_label(states, trial_id)
        return None if label is None else states.read_file(trial_id, label, name)

    def ended(self) -> dict[str, EndedTrial]:
        """How each trial with a row ended, and the label of its scores and curves."""
        table = self.trials(["trial_id", "status", "attempt_files"])
        names, statuses, files = (column.to_pylist() for column in table.columns)
        # Interned, so that memory holds one string per status, not one per trial.
        return {
            name: EndedTrial(sys.intern(status), label or "")
            for name, status, label in zip(names, statuses, files, strict=True)
        }

    def _rows_of(self, attempts: Mapping[str, str | None], folder: str, query: Query) -> pa.Table:
        named = {trial_id: label for trial_id, label in attempts.items() if label}
        full_query = replace(query, trial_ids=set(attempts), attempts=named, skipped=self.skipped)
        return read_table(self.files, folder, full_query)
