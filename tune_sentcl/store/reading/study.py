"""Reading a study: the folder that holds one space's trials. Nothing here writes."""

import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import pyarrow as pa

from tune_sentcl.errors import Fault
from tune_sentcl.store.checkpoints import STATES, checkpoints_of, newest
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.reading.study_tables import Query, read_table


class Ended(NamedTuple):
    """What a driver remembers of a trial that has a row.

    Attributes:
        status: How it ended.
        attempt_files: Which attempt's files its row names; empty where they have no label.
    """

    status: str
    attempt_files: str = ""


class StudyTables(Protocol):
    """What a reader asks a study for; a `Study` reads it anew, a `Snapshot` holds it."""

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """See `Study`."""
        ...

    def scores(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """See `Study`."""
        ...

    def curves(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """See `Study`."""
        ...

    def checkpoints(self) -> set[str]:
        """See `Study`."""
        ...


@dataclass(frozen=True)
class Study:
    """A study on disk, running or finished; `read` opens one.

    Every call reads what stands then.

    Attributes:
        files: Where it lies.
        manifest: What `study.json` says.
        skipped: Takes what is wrong with each damaged file of the tables, by the file's name, and
            the rest is read; None: the first damaged file ends the reading.
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
        """Open a study; takes no lock, and the disk may be read-only.

        Args:
            path: The study's folder or URL.
            skipped: See the class.

        Raises:
            DamagedError: `study.json` is not what was written.
            StudyError: There is no study, or it is of another schema.
        """
        files = StudyFiles.at(path)
        return cls(files, Manifest.read(files), skipped)

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row a trial that has ended; columns as in `schema.TRIALS`.

        Args:
            columns: Their names; None for all.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        return read_table(self.files, "trials", Query(columns, skipped=self.skipped))

    def scores(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """The scores of finished trials; columns as in `schema.SCORES`.

        Args:
            columns: Their names; None for all.
            where: A `pyarrow.compute.Expression` over any columns; None for all rows.
            among: The finished trials with their `attempt_files`, where the caller has read
                those; None reads them too.

        Raises:
            StudyError: A file is damaged, or the disk refused.
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
        """The points of trials that have ended; columns as in `schema.CURVES`.

        Args:
            columns: Their names; None for all.
            where: A `pyarrow.compute.Expression` over any columns; None for all rows.
            among: Trials that have ended with their `attempt_files`, where the caller has read
                those; None: all.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        if among is None:
            among = {t: e.attempt_files for t, e in self.ended().items()}
        return self._rows_of(among, "curves", Query(columns, where))

    def checkpoints(self) -> set[str]:
        """The trials whose weights are there, whole.

        Raises:
            StudyError: The disk refused.
        """
        return checkpoints_of(self.files).whole()

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """The folder of a trial's weights, brought here for the block if it lies elsewhere.

        Raises:
            StudyError: It is not there, or cannot be read.
        """
        return checkpoints_of(self.files).brought(trial_id)

    def states(self) -> set[str]:
        """The trials that have left a state to go on from, whole.

        Raises:
            StudyError: The disk refused.
        """
        return checkpoints_of(self.files, STATES).trials()

    def state_file(self, trial_id: str, name: str) -> bytes | None:
        """One file of a trial's newest state; None where there is none.

        Raises:
            StudyError: The disk refused.
        """
        states = checkpoints_of(self.files, STATES)
        label = newest(states, trial_id)
        return None if label is None else states.part(trial_id, label, name)

    def ended(self) -> dict[str, Ended]:
        """How each trial that has a row ended, and where its scores and curves are.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        table = self.trials(["trial_id", "status", "attempt_files"])
        names, statuses, files = (column.to_pylist() for column in table.columns)
        # One string a status, not one a trial.
        return {
            name: Ended(sys.intern(status), label or "")
            for name, status, label in zip(names, statuses, files, strict=True)
        }

    def _rows_of(self, attempts: Mapping[str, str | None], folder: str, query: Query) -> pa.Table:
        named = {trial_id: label for trial_id, label in attempts.items() if label}
        whole = replace(query, trial_ids=set(attempts), attempts=named, skipped=self.skipped)
        return read_table(self.files, folder, whole)
