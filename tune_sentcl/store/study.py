"""Reading a study, which holds the trials of one space."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

from tune_sentcl.plugins.stored import register_stored
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.parts import joined, part_names, read_part, rows_of_trials, select_fields
from tune_sentcl.store.rows import schema_of
from tune_sentcl.store.trial_folders import STATES, WEIGHTS, TrialFolder, TrialFolders


class EndedTrial(NamedTuple):
    """How a trial with a row ended, and the label of the attempt that trained its weights."""

    status: str
    attempt_files: str = ""


class StudyTables(ABC):
    """The tables of a study, read at each call (`Study`) or in memory (`Snapshot`)."""

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per ended trial, with the columns of `schema.trials_schema()`.

        Args:
            columns: Columns to read; None for all.
        """
        return self._table("trials", columns)

    def scores(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Collection[str] | None = None,
    ) -> pa.Table:
        """The scores of finished trials, with the columns of `schema.SCORES`.

        Args:
            columns: Columns to read; None for all.
            where: A `pyarrow.compute.Expression` that filters rows by any columns; None for all.
            among: Finished trials, if the caller has read them; None reads them and takes all.
        """
        return self._table("scores", columns, where, among)

    def curves(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Collection[str] | None = None,
    ) -> pa.Table:
        """The curves of ended trials, with the columns of `schema.CURVES`.

        Args:
            columns: Columns to read; None for all.
            where: A `pyarrow.compute.Expression` that filters rows by any columns; None for all.
            among: Ended trials, if the caller has read them; None reads them and takes all.
        """
        return self._table("curves", columns, where, among)

    @abstractmethod
    def checkpoints(self) -> set[str]:
        """The finished trials with weights."""

    @abstractmethod
    def _table(
        self,
        folder: str,
        columns: Sequence[str] | None,
        where: Any = None,
        among: Collection[str] | None = None,
    ) -> pa.Table:
        """Some columns and rows of a table."""


@dataclass(frozen=True)
class Study(StudyTables):
    """A running or finished study, opened by `read`; every call reads its files again.

    Every method raises StudyError if a file is damaged or cannot be read.

    Attributes:
        files: Its files.
        manifest: The content of `study.json`.
    """

    files: StudyFiles
    manifest: Manifest

    def __post_init__(self) -> None:
        register_stored(self.manifest.losses)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Open a study without a lock; its disk may be read-only.

        Args:
            path: The study's folder or URL.

        Raises:
            DamagedError: `study.json` is damaged.
            StudyError: There is no study, or it has another schema.
        """
        files = StudyFiles.at(path)
        return cls(files, Manifest.read(files))

    def checkpoints(self) -> set[str]:
        """The finished trials with weights."""
        ended = self.ended()
        weights = TrialFolders(self.files, WEIGHTS)
        own = (one for one in weights.found() if is_own(one, ended))
        return {one.trial_id for one in own if weights.is_complete(one)}

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """The local folder of a trial's weights, downloaded for the block if necessary."""
        label = self.ended()[trial_id].attempt_files
        return TrialFolders(self.files, WEIGHTS).local(TrialFolder.of(trial_id, label))

    def states(self) -> set[str]:
        """The trials with a state, which may be incomplete."""
        return {one.trial_id for one in TrialFolders(self.files, STATES).found()}

    def state_file(self, trial_id: str, name: str) -> bytes | None:
        """One file of a trial's newest state; None if it is missing."""
        states = TrialFolders(self.files, STATES)
        newest = states.newest_complete(trial_id)
        return None if newest is None else states.read_file(newest, name)

    def ended(self) -> dict[str, EndedTrial]:
        """How each trial with a row ended, and the attempt that trained its weights."""
        table = self.trials(["trial_id", "status", "attempt_files"])
        names, statuses, labels = (column.to_pylist() for column in table.columns)
        # Interned, so that memory holds one string per status, not one per trial.
        return {
            name: EndedTrial(sys.intern(status), label or "")
            for name, status, label in zip(names, statuses, labels, strict=True)
        }

    def _table(
        self,
        folder: str,
        columns: Sequence[str] | None,
        where: Any = None,
        among: Collection[str] | None = None,
    ) -> pa.Table:
        if among is None and folder != "trials":
            ended = self.ended().items()
            among = [t for t, one in ended if folder == "curves" or one.status == "finished"]

        def read(part: str) -> pa.Table:
            table = read_part(self.files, part, self.files.read_bytes(part), columns, where)
            return table if among is None else rows_of_trials(table, among)

        tables = self.files.each(read, part_names(self.files, folder))
        table = joined(tables, select_fields(schema_of(folder), columns))
        return table if columns is None else table.select(list(columns))


def is_own(folder: TrialFolder, ended: Mapping[str, EndedTrial]) -> bool:
    """Whether weights are those that the row of their trial names."""
    return ended.get(folder.trial_id) == ("finished", folder.label)
