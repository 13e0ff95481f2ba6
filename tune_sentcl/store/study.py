"""Read a study, which holds the trials of one search space: at each call, or once into memory."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.plugins.stored import register_stored
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.parts import joined, part_names, read_part, rows_of_trials, select_fields
from tune_sentcl.store.rows import schema_of
from tune_sentcl.store.trial_folders import ITEMS, STATES, WEIGHTS, TrialFolder, TrialFolders

STUDY = "study"
"""The column that names the study of each row, if several studies were read."""

Columns = Sequence[str] | None
"""The columns to read; None for all."""

Trials = Collection[str] | None
"""The trials whose rows are read; None for all."""


class EndedTrial(NamedTuple):
    """The status of a trial with a row, and the label of the attempt that trained its weights."""

    status: str
    attempt_files: str = ""


class StudyTables(ABC):
    """The tables of a study, read at each call (`Study`) or in memory (`Snapshot`)."""

    def trials(self, columns: Columns = None) -> pa.Table:
        """One row per ended trial, with the columns of `rows.trials_schema()`.

        Args:
            columns: Columns to read; None for all.
        """
        return self._table("trials", columns)

    def scores(self, columns: Columns = None, where: Any = None, among: Trials = None) -> pa.Table:
        """The scores of finished trials, with the columns of `rows.SCORES`.

        Args:
            columns: Columns to read; None for all.
            where: A `pyarrow.compute.Expression` that filters rows by any columns; None for all.
            among: The finished trials to read, if the caller knows them; None: all finished
                trials.
        """
        return self._table("scores", columns, where, among)

    def curves(self, columns: Columns = None, where: Any = None, among: Trials = None) -> pa.Table:
        """The curves of ended trials, with the columns of `rows.CURVES`.

        The arguments are those of `scores`, but `among` names ended trials.
        """
        return self._table("curves", columns, where, among)

    @abstractmethod
    def checkpoints(self) -> set[str]:
        """The finished trials with weights."""

    @abstractmethod
    def _table(
        self, folder: str, columns: Columns, where: Any = None, among: Trials = None
    ) -> pa.Table:
        """Read some columns and rows of a table."""


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
        register_stored(self.manifest.methods)

    def older(self) -> frozenset[str]:
        """The configurations whose method's plugin has changed since; see `Manifest.is_older`."""
        if not self.manifest.methods:
            return frozenset()
        rows = self.trials(["configuration", "method.name", "code_fingerprint"]).to_pylist()
        of_older = self.manifest.is_older
        return frozenset(
            row["configuration"]
            for row in rows
            if of_older(row["method.name"], row["code_fingerprint"])
        )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Open a study without a lock; its disk may be read-only.

        Args:
            path: The study's folder or URL.

        Raises:
            DamagedError: `study.json` is damaged.
            StudyError: There is no study, or the study has another schema.
        """
        files = StudyFiles.at(path)
        return cls(files, Manifest.read(files))

    def checkpoints(self) -> set[str]:
        """The finished trials with weights."""
        ended = self.ended()
        weights = TrialFolders(self.files, WEIGHTS)
        own = (folder for folder in weights.existing() if is_own(folder, ended))
        return {folder.trial_id for folder in own if weights.is_complete(folder)}

    def checkpoint(self, trial_id: str) -> AbstractContextManager[Path]:
        """Context manager: the local folder of a trial's weights, downloaded if necessary."""
        return TrialFolders(self.files, WEIGHTS).local(self._weights_of(trial_id))

    def items_file(self, trial_id: str, name: str) -> bytes | None:
        """The file of a trial's scores of single items; None if the file was not kept."""
        if not self.ended()[trial_id].attempt_files:
            return None
        folder = self._weights_of(trial_id)
        kinds = (TrialFolders(self.files, kind) for kind in (WEIGHTS, ITEMS))
        return next(filter(None, (kind.read_file(folder, name) for kind in kinds)), None)

    def _weights_of(self, trial_id: str) -> TrialFolder:
        return TrialFolder.of(trial_id, self.ended()[trial_id].attempt_files)

    def states(self) -> set[str]:
        """The trials with a state, which may be incomplete."""
        return {folder.trial_id for folder in TrialFolders(self.files, STATES).existing()}

    def state_file(self, trial_id: str, name: str) -> bytes | None:
        """One file of a trial's newest state; None if it is missing."""
        states = TrialFolders(self.files, STATES)
        newest = states.newest_complete(trial_id)
        return None if newest is None else states.read_file(newest, name)

    @property
    def has_finished(self) -> bool:
        """Whether a trial has finished; before, nothing has been scored."""
        return any(end.status == "finished" for end in self.ended().values())

    def ended(self) -> dict[str, EndedTrial]:
        """The status of each trial with a row, and the attempt that trained its weights."""
        table = self.trials(["trial_id", "status", "attempt_files"])
        names, statuses, labels = (column.to_pylist() for column in table.columns)
        # `intern` keeps each status in memory once instead of once per trial.
        return {
            name: EndedTrial(sys.intern(status), label or "")
            for name, status, label in zip(names, statuses, labels, strict=True)
        }

    def _table(
        self, folder: str, columns: Columns, where: Any = None, among: Trials = None
    ) -> pa.Table:
        if among is None and folder != "trials":
            ended = self.ended().items()
            among = [t for t, end in ended if folder == "curves" or end.status == "finished"]

        def read(part: str) -> pa.Table:
            table = read_part(self.files, part, self.files.read_bytes(part), columns, where)
            return table if among is None else rows_of_trials(table, among)

        tables = self.files.each(read, part_names(self.files, folder))
        table = joined(tables, select_fields(schema_of(folder), columns))
        return table if columns is None else table.select(list(columns))


@dataclass(frozen=True, eq=False)
class Snapshot(StudyTables):
    """The tables of a study in memory, all of the same trials; later writes have no effect."""

    tables: Mapping[str, pa.Table]

    @classmethod
    def of(cls, study: Study) -> Self:
        """Read the trials, then the scores and curves of these trials."""
        trials = study.trials()
        finished = trials.filter(pc.field("status") == "finished")["trial_id"].to_pylist()
        scores = study.scores(among=finished)
        curves = study.curves(among=trials["trial_id"].to_pylist())
        return cls({"trials": trials, "scores": scores, "curves": curves})

    def checkpoints(self) -> set[str]:
        """Empty, because a snapshot has tables only."""
        return set()

    def labelled(self, name: str) -> "Snapshot":
        """This snapshot with a first column `STUDY` of the value `name`."""
        field = pa.field(STUDY, pa.string(), nullable=False)
        return Snapshot(
            {
                folder: table.add_column(0, field, pa.repeat(pa.scalar(name), len(table)))
                for folder, table in self.tables.items()
            }
        )

    def _table(
        self, folder: str, columns: Columns, where: Any = None, among: Trials = None
    ) -> pa.Table:
        table = self.tables[folder]
        if where is not None:
            table = table.filter(where)
        if among is not None:
            table = rows_of_trials(table, among)
        return table if columns is None else table.select(list(columns))


def is_own(folder: TrialFolder, ended: Mapping[str, EndedTrial]) -> bool:
    """Whether a folder's weights are from the attempt that the trial's row names."""
    return ended.get(folder.trial_id) == ("finished", folder.label)
