"""A study's three tables as they stood at one moment, in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from tune_sentcl.store.parts import only
from tune_sentcl.store.reading.study import StudyTables

STUDY = "study"
"""The column that says which study a row comes from, where several were read."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What `of` has read; every question is answered from there, whatever a driver writes since.

    Attributes:
        tables: `trials`, `scores` and `curves`, of the same trials.
    """

    tables: Mapping[str, pa.Table]

    @classmethod
    def of(cls, study: StudyTables) -> Self:
        """Read each table once: the scores and curves of the trials that the first one holds.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        trials = study.trials()
        names, statuses, files = (
            trials[name].to_pylist() for name in ("trial_id", "status", "attempt_files")
        )
        ended = dict(zip(names, files, strict=True))
        finished = {
            name: ended[name]
            for name, status in zip(names, statuses, strict=True)
            if status == "finished"
        }
        scores, curves = study.scores(among=finished), study.curves(among=ended)
        return cls({"trials": trials, "scores": scores, "curves": curves})

    def trials(self, columns: Sequence[str] | None = None) -> pa.Table:
        """See `Study`."""
        return _selected(self.tables["trials"], columns)

    def scores(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """See `Study`."""
        return self._rows("scores", columns, where, among)

    def curves(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        among: Mapping[str, str | None] | None = None,
    ) -> pa.Table:
        """See `Study`."""
        return self._rows("curves", columns, where, among)

    def checkpoints(self) -> set[str]:
        """None: it holds tables alone."""
        return set()

    def labelled(self, name: str) -> "Snapshot":
        """The same with a first column that says which study each row comes from."""
        field = pa.field(STUDY, pa.string(), nullable=False)
        return Snapshot(
            {
                folder: table.add_column(0, field, pa.repeat(pa.scalar(name), len(table)))
                for folder, table in self.tables.items()
            }
        )

    def _rows(
        self,
        folder: str,
        columns: Sequence[str] | None,
        where: Any,
        among: Collection[str] | None,
    ) -> pa.Table:
        table = self.tables[folder]
        if where is not None:
            table = table.filter(where)
        if among is not None:
            table = only(table, among)
        return _selected(table, columns)


def _selected(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    return table if columns is None else table.select(list(columns))
