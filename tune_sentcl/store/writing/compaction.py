"""Merging of trial files into segments and compacted files, which are faster to read."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.parts import Part, conform, only, opened, widened, without
from tune_sentcl.store.reading.study import Ended
from tune_sentcl.store.reading.study_tables import own_labels
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import (
    Counting,
    Listing,
    compacted,
    epoch_of,
    file_of,
    holding,
    in_order,
    own_stem,
)

GATHERED = 256
"""Trials per segment and per row group."""


Rewrite = Callable[[pa.Table], pa.Table]
"""Changes columns of some rows of a table."""

# `trials` last, so that a compacted row never names scores or curves that are not yet compacted.
_ORDER = ("curves", "scores", "trials")


@dataclass(frozen=True)
class Gathering:
    """Merges the files of a study.

    Attributes:
        files: The study.
        ended: Every trial that has a row; the files of other trials are kept.
        epoch: The driver's epoch.
        running: Trials whose scores and curves a worker may be writing; these files are kept.
        recent: Rows of trials in memory, so that their files need not be read again.
        rewrites: Changes of rows by table, applied during compaction.
    """

    files: StudyFiles
    ended: Mapping[str, Ended]
    epoch: int
    running: Collection[str] = ()
    recent: Mapping[str, pa.Table] = field(default_factory=dict)
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)

    def into_segment(self) -> None:
        """Merge the trial files of each table into a new segment; no error loses rows."""
        for folder in _ORDER:
            listing = self._listing(folder)
            files = self._own(folder, listing)
            if files.own:
                segment = listing.next_segment(self.epoch)
                table = self._own_table(folder, files.own)
                schema = holding(table.schema, files.own)
                self.files.write_table(
                    file_of(folder, segment),
                    table.replace_schema_metadata(schema.metadata),
                    new=True,
                )
            self.files.delete_all(folder, [f"{stem}.parquet" for stem in files.done])

    def into_one(self) -> None:
        """Compact each table into one file, with one row group in memory; no error loses rows."""
        for folder in _ORDER:
            listing = self._listing(folder)
            files = self._own(folder, listing)
            older = [stem for stem in listing.shared if stem != compacted(self.epoch)]
            if files.own or listing.scattered or self._changes(folder, listing):
                self._write_compacted(folder, listing, files.own)
                # Lowest first, so that after a crash the newest rows of a trial remain.
                for stem in older:
                    self.files.delete(file_of(folder, stem))
            self.files.delete_all(folder, [f"{stem}.parquet" for stem in files.done])

    def _listing(self, folder: str) -> Listing:
        listing = Listing.of(self.files, folder)
        names = [*listing.shared, *(own_stem(t, n[-1]) for t, n in listing.own.items() if n[-1])]
        if any(epoch_of(stem) > self.epoch for stem in names):
            rule = "another driver has taken over and written here"
            move = "Leave the study to it; the rows that this driver committed are kept."
            raise StudyError(Fault(self.files.shown(folder), "", "", rule, move))
        return listing

    def _own(self, folder: str, listing: Listing) -> "_Own":
        # Workers write scores and curves; only the driver writes rows.
        busy = self.running if folder != "trials" else ()
        ready = {t: labels for t, labels in listing.own.items() if t in self.ended}
        ready = {t: labels for t, labels in ready.items() if t not in busy}
        attempts = {trial_id: self.ended[trial_id].attempt_files for trial_id in ready}
        own: Mapping[str, str] = own_labels(folder, Listing(ready, {}), attempts)
        if folder == "trials":
            own = self._highest(own, listing)
        done = [own_stem(t, label) for t, labels in ready.items() for label in labels]
        return _Own(own, done)

    def _highest(self, own: Mapping[str, str], listing: Listing) -> Mapping[str, str]:
        """Drop trial files whose rows another driver has replaced in a shared file."""
        if all(in_order(label)[0] >= self.epoch for label in own.values()):
            return own
        return Counting.of(own, _held(self._said("trials", listing)), ranked=True).own

    def _said(self, folder: str, listing: Listing) -> dict[str, Part]:
        found = {}
        for stem in listing.shared:
            with opened(self.files, folder, stem) as part:
                found[stem] = part
        return found

    def _own_table(self, folder: str, own: Mapping[str, str]) -> pa.Table:
        counting = {t: label for t, label in own.items() if self._counts(folder, t)}
        recent = self.recent if folder == "trials" else {}
        tables = [TABLES[folder].empty_table()]
        for trial_id, label in counting.items():
            if trial_id in recent:
                tables.append(recent[trial_id])
            else:
                with opened(self.files, folder, own_stem(trial_id, label)) as part:
                    tables += part.tables()
        joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
        return joined.replace_schema_metadata(TABLES[folder].metadata)

    def _counts(self, folder: str, trial_id: str) -> bool:
        """Whether a table keeps a trial's rows; `scores` keeps those of finished trials only."""
        return folder != "scores" or self.ended[trial_id].status == "finished"

    def _write_compacted(self, folder: str, listing: Listing, own: Mapping[str, str]) -> None:
        rewrite = self.rewrites.get(folder, _unchanged)
        schema = TABLES[folder]
        shared = self._said(folder, listing)
        for part in shared.values():
            schema = widened(schema, part.schema)
        for named in own.items():
            with opened(self.files, folder, own_stem(*named)) as part:
                schema = widened(schema, part.schema)
        counting = Counting.of(own, _held(shared), ranked=folder == "trials")
        stem = compacted(self.epoch)
        with (
            self.files.writing(file_of(folder, stem), new=stem not in listing.shared) as file,
            RowGroups(file, schema) as out,
        ):
            for table in self._stretches(folder, counting):
                out.add(conform(rewrite(conform(table, schema)), schema))

    def _changes(self, folder: str, listing: Listing) -> bool:
        """Whether the rewrite of a compacted table changes any row."""
        if folder not in self.rewrites:
            return False
        hidden = {stem: frozenset[str]() for stem in listing.shared}
        return any(
            not self.rewrites[folder](table).equals(table)
            for table in self._stretches(folder, Counting({}, hidden))
        )

    def _stretches(self, folder: str, counting: Counting) -> Iterator[pa.Table]:
        named = [name for name in self.ended if self._counts(folder, name)]
        for stem, left_out in reversed(list(counting.hidden.items())):  # lowest first
            if left_out is None:
                continue
            with opened(self.files, folder, stem) as part:
                for table in part.tables():
                    yield without(only(table, named), left_out)
        own = list(counting.own.items())
        for start in range(0, len(own), GATHERED):
            yield self._own_table(folder, dict(own[start : start + GATHERED]))


@dataclass(frozen=True)
class _Own:
    """The labels of effective trial files by trial, and the names of all that can be deleted."""

    own: Mapping[str, str]
    done: Collection[str]


def _held(parts: Mapping[str, Part]) -> dict[str, frozenset[str]]:
    return {stem: part.held for stem, part in parts.items()}


class RowGroups:
    """Writes a Parquet file in row groups of about `GATHERED` trials; a context manager."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        """Write into an open file, which the caller closes."""
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._trials = 0

    def add(self, table: pa.Table) -> None:
        """Buffer the rows of some trials, and write a full row group."""
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


def _unchanged(table: pa.Table) -> pa.Table:
    return table
