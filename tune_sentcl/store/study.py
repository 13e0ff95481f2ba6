"""Reading a study, which holds the trials of one space."""

import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.parts import joined, part_names, read_part, rows_of_trials, select_fields
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.trial_folders import STATES, WEIGHTS, TrialFolder, TrialFolders

_READERS = 8  # threads on an object store, where latency dominates


class EndedTrial(NamedTuple):
    """How a trial with a row ended, and the label of the attempt that trained its weights."""

    status: str
    attempt_files: str = ""


@dataclass(frozen=True)
class Study:
    """A running or finished study, opened by `read`; every call reads its files again.

    Every method raises StudyError if a file is damaged or cannot be read.

    Attributes:
        files: Its files.
        manifest: The content of `study.json`.
    """

    files: StudyFiles
    manifest: Manifest

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

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per ended trial, with the columns of `schema.TRIALS`.

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
        if among is None:
            among = [t for t, ended in self.ended().items() if ended.status == "finished"]
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
        return self._table("curves", columns, where, self.ended() if among is None else among)

    def checkpoints(self) -> set[str]:
        """The finished trials with weights."""
        ended = self.ended()
        weights = TrialFolders(self.files, WEIGHTS)
        own = (one for one in weights.found() if are_own(one, ended.get(one.trial_id)))
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
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Collection[str] | None = None,
    ) -> pa.Table:
        names = part_names(self.files, folder)

        def read(name: str) -> pa.Table:
            shown = self.files.display_path(name)
            data = self.files.read_bytes(name) or b""
            table = read_part(shown, folder, data, columns, where)
            return table if among is None else rows_of_trials(table, among)

        # On a disk, threads only wait for each other.
        with nullcontext() if self.files.folder else ThreadPoolExecutor(_READERS) as pool:
            tables = list((pool.map if pool else map)(read, names))
        table = joined(tables, select_fields(TABLES[folder], columns))
        return table if columns is None else table.select(list(columns))


def are_own(folder: TrialFolder, ended: EndedTrial | None) -> bool:
    """Whether weights are those that the row of their trial names."""
    return ended == ("finished", folder.label)
