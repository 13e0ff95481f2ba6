"""A study's three tables in memory, as they were at one moment."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.store.parts import rows_of_trials
from tune_sentcl.store.study import Study, StudyTables

STUDY = "study"
"""The column with the study of each row, if several studies were read."""


@dataclass(frozen=True, eq=False)
class Snapshot(StudyTables):
    """The tables `trials`, `scores` and `curves` of the same trials; later writes do not show."""

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
        """The same with a first column `STUDY` that has the value `name`."""
        field = pa.field(STUDY, pa.string(), nullable=False)
        return Snapshot(
            {
                folder: table.add_column(0, field, pa.repeat(pa.scalar(name), len(table)))
                for folder, table in self.tables.items()
            }
        )

    def _table(
        self,
        folder: str,
        columns: Sequence[str] | None,
        where: Any = None,
        among: Collection[str] | None = None,
    ) -> pa.Table:
        table = self.tables[folder]
        if where is not None:
            table = table.filter(where)
        if among is not None:
            table = rows_of_trials(table, among)
        return table if columns is None else table.select(list(columns))
