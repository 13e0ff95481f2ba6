"""Bringing files together: the driver's way to keep a study small and quick to read."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.parts import conform, only, opened, widened, without
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import COMPACTED, Listing, file_of, hidden, holding

GATHERED = 256
"""How many trials a segment and a row group hold."""

Rewrite = Callable[[pa.Table], pa.Table]
"""Gives a stretch of a table's rows other columns."""

# Scores and curves first, so that rows are never newer than what they speak of.
_ORDER = ("curves", "scores", "trials")


@dataclass(frozen=True)
class Gathering:
    """What may be brought together.

    Attributes:
        files: The study.
        statuses: The status of each trial that has a row; the files of all others stay.
        running: Trials whose scores and curves a worker may be writing; these files stay.
        recent: Tables of one row that are at hand, so that their files need not be read again.
        rewrites: What becomes of a table's rows on the way; a table that has one is always
            compacted.
    """

    files: StudyFiles
    statuses: Mapping[str, str]
    running: Collection[str] = ()
    recent: Mapping[str, pa.Table] = field(default_factory=dict)
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)

    def into_segment(self) -> None:
        """Bring trials' own files into one new segment a table.

        Raises:
            StudyError: A file is damaged, or the disk refused; nothing is lost.
        """
        for folder in _ORDER:
            listing = Listing.of(self.files, folder)
            own = self._own(folder, listing)
            if own:
                self._write_segment(folder, listing.next_segment(), own)
                self._delete(folder, own)

    def into_one(self) -> None:
        """Bring each table into one file, a segment's worth of it in memory at a time.

        Raises:
            StudyError: A file is damaged, or the disk refused; nothing is lost.
        """
        for folder in _ORDER:
            listing = Listing.of(self.files, folder)
            own = self._own(folder, listing)
            segments = [stem for stem in listing.shared if stem != COMPACTED]
            if own or segments or folder in self.rewrites:
                self._write_compacted(folder, [*listing.shared], own)
                # From the lowest, so that what is left of a trial is always its newest.
                self._delete(folder, [*segments, *own])

    def _own(self, folder: str, listing: Listing) -> list[str]:
        # Only the driver writes rows.
        busy = self.running if folder != "trials" else ()
        return [stem for stem in listing.own if stem in self.statuses and stem not in busy]

    def _delete(self, folder: str, stems: Collection[str]) -> None:
        for stem in stems:
            self.files.delete(file_of(folder, stem))

    def _write_segment(self, folder: str, segment: str, own: list[str]) -> None:
        table = self._own_table(folder, own)
        schema = holding(table.schema, own)
        self.files.write_table(
            file_of(folder, segment), table.replace_schema_metadata(schema.metadata)
        )

    def _own_table(self, folder: str, own: Collection[str]) -> pa.Table:
        counting = [stem for stem in own if self._counts(folder, stem)]
        recent = self.recent if folder == "trials" else {}
        tables = [TABLES[folder].empty_table()]
        for stem in counting:
            if stem in recent:
                tables.append(recent[stem])
            else:
                with opened(self.files, folder, stem) as part:
                    tables += part.tables()
        joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
        return joined.replace_schema_metadata(TABLES[folder].metadata)

    def _counts(self, folder: str, trial_id: str) -> bool:
        """Whether what a table says of a trial counts: scores do of finished ones only."""
        return folder != "scores" or self.statuses[trial_id] == "finished"

    def _write_compacted(self, folder: str, shared: list[str], own: list[str]) -> None:
        rewrite = self.rewrites.get(folder, _as_it_is)
        schema = TABLES[folder]
        holds: dict[str, frozenset[str]] = {}
        for stem in [*shared, *own]:
            with opened(self.files, folder, stem) as part:
                schema = widened(schema, part.schema)
                if stem in shared:
                    holds[stem] = part.held
        with (
            self.files.writing(file_of(folder, COMPACTED)) as file,
            _RowGroups(file, schema) as out,
        ):
            for table in self._stretches(folder, hidden(own, holds), own):
                out.add(conform(rewrite(conform(table, schema)), schema))

    def _stretches(
        self, folder: str, covered: dict[str, set[str]], own: list[str]
    ) -> Iterator[pa.Table]:
        counting = [name for name in self.statuses if self._counts(folder, name)]
        for stem in reversed(covered):  # lowest first
            with opened(self.files, folder, stem) as part:
                for table in part.tables():
                    yield without(only(table, counting), covered[stem])
        for start in range(0, len(own), GATHERED):
            yield self._own_table(folder, own[start : start + GATHERED])


class _RowGroups:
    """Writes a Parquet file in row groups of about `GATHERED` trials."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._trials = 0

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._trials += pc.count_distinct(table["trial_id"]).as_py()
        if self._trials >= GATHERED:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._trials = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._waiting:
            self._flush()
        self._writer.close()


def _as_it_is(table: pa.Table) -> pa.Table:
    return table
